//go:build !amd64 || race

package shmem

import "github.com/ntbnet/ntbnet/ntb"

// plainStores: see the other file. Elsewhere, and for the race detector, stores
// that others wait for are atomic.
const plainStores = false

// storeFence keeps earlier stores before later ones.
func storeFence() { ntb.Fence() }
