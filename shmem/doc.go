// Package shmem is OpenSHMEM for Go: programs whose processing elements (PEs) read and
// write each other's memory.
//
// It is not a backend that makes bridges of shared memory; that is ntb/ntbshm.
package shmem
