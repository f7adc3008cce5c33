// Package ntbdma puts a DMA engine made of software around a device that has none.
// Each channel is a goroutine that copies. So everything above the contract can be
// tried and tested without a bridge. The engine is not faster than the CPU, since
// it is the CPU.
package ntbdma
