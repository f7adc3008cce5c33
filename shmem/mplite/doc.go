// Package mplite passes messages between the PEs of a shmem.World, as MP_Lite does.
package mplite
