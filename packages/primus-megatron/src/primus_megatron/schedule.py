"""The schedules of learning rate and batch size. Megatron refuses them in assertions without words, or ignores them."""

from __future__ import annotations

from primus_megatron.settings import Settings

__all__ = ["check_schedule"]


def check_schedule(settings: Settings) -> None:
    """Look for what does not fit; it goes to the settings' mistakes."""
    settings.check(_check_unit, _check_warmup, _check_fraction, _check_least_rate, _check_first_rate, _check_stable)
    settings.check(_check_ramp)


def _check_unit(settings: Settings) -> None:
    for name in ("train_samples", "lr_decay_samples", "lr_warmup_samples"):
        if settings[name] != settings.options[name].default:
            what = f"'{name}' counts samples, and 'train_iters' iterations"
            fix = f"set {name.replace('samples', 'iters')} instead"
            raise settings.error(name, what, why="Primus counts iterations", fix=fix)


def _check_warmup(settings: Settings) -> None:
    steps = settings["lr_warmup_iters"]
    end = "lr_decay_iters" if settings["lr_decay_iters"] else "train_iters"
    if settings["lr_warmup_fraction"] is None and steps >= settings[end]:
        raise settings.error(
            "lr_warmup_iters",
            f"lr_warmup_iters {steps} is not less than {end} {settings[end]}",
            why="the learning rate rises in the first, and falls in the rest of the second",
            fix=f"take fewer than {settings[end]}",
        )


def _check_fraction(settings: Settings) -> None:
    share = settings["lr_warmup_fraction"]
    if share is not None and not 0 <= share < 1:
        what = f"'lr_warmup_fraction' is {share}, and must be at least 0 and below 1"
        raise settings.error("lr_warmup_fraction", what)
    if share is not None and settings["lr_warmup_iters"]:
        what = "'lr_warmup_fraction' and 'lr_warmup_iters' both set the length of the warm-up"
        raise settings.error("lr_warmup_fraction", what, fix="keep one of them")


def _check_least_rate(settings: Settings) -> None:
    if settings["min_lr"] > settings["lr"]:
        what = f"min_lr {settings['min_lr']:g} is above lr {settings['lr']:g}"
        raise settings.error("min_lr", what, fix="lower min_lr")


def _check_first_rate(settings: Settings) -> None:
    if settings["lr_warmup_init"] > settings["lr"]:
        what = f"lr_warmup_init {settings['lr_warmup_init']:g} is above lr {settings['lr']:g}"
        raise settings.error("lr_warmup_init", what, fix="lower lr_warmup_init")


def _check_stable(settings: Settings) -> None:
    if settings["lr_decay_style"] == "WSD" and not (settings["lr_wsd_decay_iters"] or settings["lr_wsd_decay_samples"]):
        what = "'lr_decay_style: WSD' has no 'lr_wsd_decay_iters'"
        raise settings.error("lr_decay_style", what, fix="set lr_wsd_decay_iters to the length of the last part")


def _check_ramp(settings: Settings) -> None:
    name, instead = "rampup_batch_size", "step_batch_size_schedule"
    ramp, total = settings[name], settings["global_batch_size"]
    if not ramp:
        return
    if settings.knows(instead):
        what = f"'{name}' has no effect: Megatron has ignored it since 0.18"
        fix = f"set {instead} in its and global_batch_size's place, for instance '0:16 300M:32' (tokens: samples)"
        raise settings.error(name, what, fix=fix)
    start, step, samples = ramp if len(ramp) == 3 else (0, 0, 0)
    if min(start, step) < 1 or samples < 0 or not total or start > total or (total - start) % step:
        why = f"it is a start, an increment that leads to 'global_batch_size: {total}', and a number of samples"
        raise settings.error(name, f"'{name}' is {ramp}", why=why, fix="16 16 100000, for instance, or remove it")
