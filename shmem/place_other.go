//go:build !linux

package shmem

// thisPlace returns where this process runs. All PEs are within one process here.
func thisPlace() place { return place{CPUs: allCPUs()} }
