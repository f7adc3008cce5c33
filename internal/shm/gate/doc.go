// Package gate has a Gate: calls enter and leave, and what they use is released when the gate
// is shut and the last one has left. Devices have one around the memory that Close unmaps.
//
// It is not a lock: calls do not exclude each other.
package gate
