// Package ntbtime gives a bridge between two devices in memory the times of a PCIe link: of its packets, its wire, its interrupts, and
// a read across it. Only tests import it.
//
// In a bubble of testing/synctest these times are exact, and no machine's load changes them. Outside they are as exact as its timers.
// What a processor takes for its own work is not in it.
package ntbtime
