// Package heapmem has the memory of symmetric heaps that several processes use: a file that a process lends to others of
// its user on this machine, the memory that all nodes have in common ([Common], option heap), and parts of the windows of
// bridges ([Window], option puts).
//
// Option puts=window leaves the end of both windows of a bridge to heaps: the second half, or as much as option heap says.
// The link has the rest. More than two nodes have one memory, and a link from each to each. Then a heap is in no link's
// window, but in a part of the memory, to which all neighbours store.
//
// Heap memory is not checked: any PE may store any bytes there. The allocation in a heap is internal/symheap's.
package heapmem
