//go:build !amd64 || race

package shmem

import "github.com/ntbnet/ntbnet/ntb"

// plainStores is explained in store_plain.go. Here, and for the race detector,
// stores that others wait for are atomic.
const plainStores = false

// storeFence keeps earlier stores before later ones.
func storeFence() { ntb.Fence() }
