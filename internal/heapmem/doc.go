// Package heapmem has the memory of symmetric heaps that several processes use: a file that a process lends to others of
// its user on this machine, the memory that all nodes have in common ([Common], option heap), and parts of the windows of
// a bridge ([Window], option puts). What both sides can load is mapped. What can only be stored to is put by window, between
// two nodes.
//
// Option puts=window leaves the end of both windows to heaps: the second half, or as much as option heap says. The link has
// the rest.
//
// Heap memory is not checked: any PE may store any bytes there. The allocation in a heap is internal/symheap's.
package heapmem
