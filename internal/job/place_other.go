//go:build !linux

package job

// thisPlace returns where this process runs. All PEs are within one process here.
func thisPlace() place { return place{CPUs: allCPUs()} }
