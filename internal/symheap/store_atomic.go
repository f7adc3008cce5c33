//go:build !amd64 || race

package symheap

import "github.com/ntbnet/ntbnet/ntb"

// plainStores is explained in store_plain.go. Here, and for the race detector,
// stores that others wait for are atomic.
const plainStores = false

// StoreFence keeps earlier stores before later ones.
func StoreFence() { ntb.Fence() }
