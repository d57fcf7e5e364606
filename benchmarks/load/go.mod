module kafkaclienttelemetry/benchmarks/load

go 1.21
