// Package ntbdma puts a DMA engine made of software around a device that has
// none: each channel is a goroutine that copies. It is there so that everything
// above the contract can be tried and tested without a bridge. It is not faster
// than the CPU, since it is the CPU.
package ntbdma
