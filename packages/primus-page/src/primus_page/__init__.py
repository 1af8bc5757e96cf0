"""One page with tables and charts that needs no network: what reports and benchmarks write as HTML."""
