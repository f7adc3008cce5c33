//go:build !linux

package job

// thisPart returns where this process runs. All PEs are within one process here.
func thisPart() machinePart { return machinePart{CPUs: allCPUs()} }
