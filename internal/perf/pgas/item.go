package pgas

import "slices"

// Item is one operation.
type Item struct {
	Key  string // in flags and samples
	Name string // in tables
	// Bytes is how many bytes an operation moves, if the figure is throughput. It
	// is 0 if the figure is time.
	Bytes int
	// Aim is how many times faster than the other library it should be; 0 for no
	// aim.
	Aim float64
	// Mapped is set if the peer's memory must be mapped.
	Mapped bool
	PEs    int // of the job
}

const largeBytes = 1 << 20

// Aims: one for equal, and one for clearly faster.
const (
	asFast  = 0.95
	twiceAs = 2
)

// items are all items, in the order of the table.
var items = []Item{
	{Key: "put", Name: "put 8 B, issue only", Aim: twiceAs, PEs: 2},
	{Key: "putquiet", Name: "put 8 B + quiet", Aim: twiceAs, PEs: 2},
	{Key: "get", Name: "get 8 B", Aim: twiceAs, PEs: 2},
	{Key: "fetchadd", Name: "fetch-add", Aim: twiceAs, PEs: 2},
	{Key: "contended", Name: "fetch-add, both PEs on one word", Aim: asFast, PEs: 2},
	{Key: "oneway", Name: "p + wait_until, one way", Aim: asFast, PEs: 2},
	{Key: "barrier", Name: "barrier, 2 PEs", Aim: asFast, PEs: 2},
	{Key: "barrier4", Name: "barrier, 4 PEs", Aim: asFast, PEs: 4},
	{Key: "broadcast", Name: "broadcast 8 B, roots in turn", Aim: asFast, PEs: 2},
	{Key: "put1m", Name: "put 1 MiB + quiet", Bytes: largeBytes, Aim: asFast, PEs: 2},
	{Key: "get1m", Name: "get 1 MiB", Bytes: largeBytes, Aim: asFast, PEs: 2},
	{Key: "copy", Name: "plain copy 1 MiB", Bytes: largeBytes, Mapped: true, PEs: 2},
	{Key: "copypieces", Name: "plain copy 1 MiB, in pieces of 512 KiB", Bytes: largeBytes, Mapped: true, PEs: 2},
}

// Keys returns the keys of all items, in the order of the table.
func Keys() (keys []string) {
	for _, it := range items {
		keys = append(keys, it.Key)
	}
	return keys
}

// Of returns those of keys that are for jobs of so many PEs.
func Of(pes int, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return itemOf(k).PEs != pes })
}

// Unmapped returns those of keys that need no mapped memory.
func Unmapped(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), needsMapped)
}

func needsMapped(key string) bool { return itemOf(key).Mapped }

// itemOf returns the item of a key, which must exist.
func itemOf(key string) Item {
	return items[slices.IndexFunc(items, func(it Item) bool { return it.Key == key })]
}

// value returns an item's figure for ns per operation.
func (it Item) value(ns float64) float64 {
	if it.Bytes > 0 {
		return float64(it.Bytes) / ns
	}
	return ns
}

func (it Item) unit() string {
	if it.Bytes > 0 {
		return "GB/s"
	}
	return "ns"
}

// Sample is the result of one run: ns for an operation, by item. Items that the PEs
// cannot do are missing.
type Sample map[string]float64
