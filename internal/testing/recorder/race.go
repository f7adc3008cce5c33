//go:build race

package recorder

const race = true
