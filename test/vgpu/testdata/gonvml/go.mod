module gonvml

go 1.26

require github.com/NVIDIA/go-nvml v0.13.1-0
