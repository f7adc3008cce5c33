//go:build amd64 && !race

package symheap

// plainStores says that a plain store of 4 or 8 bytes is one store, and that stores
// are seen in their order. The stores of sync/atomic would be locked instructions.
const plainStores = true

// StoreFence keeps earlier stores before later ones. On this processor they are
// ordered already.
func StoreFence() {}
