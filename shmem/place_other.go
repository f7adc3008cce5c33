//go:build !linux

package shmem

// thisPlace is where this process runs. PEs are within one process here.
func thisPlace() place { return place{CPUs: allCPUs()} }
