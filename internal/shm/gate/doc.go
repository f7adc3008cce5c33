// Package gate has a Gate: calls enter and leave. What they use is released after the gate is
// shut and the last call has left. Devices have one around the memory that Close unmaps.
//
// It is not a lock: calls do not exclude each other.
package gate
