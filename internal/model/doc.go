// Package model has tests that measure this module on modelled bridges, whose times testing/synctest makes exact. docs/model.md says
// what that shows.
package model
