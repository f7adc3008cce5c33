// Package spec parses the text that names a fabric, such as ring:lab?node=1&nodes=4, and says what follows from it: the
// options, the plan of wires, names and addresses of nodes, the directory in which processes meet, and the devices that
// options name as ends of wires.
//
// A process joins a fabric by internal/fabric. Here nobody does: a [Spec] opens nothing but ends of wires, and looks into
// directories for the process that owns a node's links.
//
// The parts of a Spec have one job each. [Topology] has the nodes, [Meeting] says where processes meet, [Local] has the
// options of each process, [Links] those of the owner of links, and [Ends] the devices.
//
// A process that names no fabric has that of [Default].
package spec
