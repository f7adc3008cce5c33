//go:build amd64 && !race

package shmem

// plainStores: a plain store of 4 or 8 bytes is one store, and stores are seen in
// their order. sync/atomic would lock the bus for each.
const plainStores = true

// storeFence keeps earlier stores before later ones: here they are.
func storeFence() {}
