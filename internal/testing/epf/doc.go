// Package epf is a model, for tests, of a bridge that is an endpoint function of a system on a chip: TI's J721E,
// whose firmware is the kernel's pci-epf-ntb.c. Each machine's cable ends at a controller of its own, and the function
// carries what one controller receives to the other.
//
//	machine        controller and BARs                          memory and controllers of the chip
//
//	stores ------> BAR0  commands, MSI-X, own scratchpads ----> memory of this side
//	stores ------> BAR1  the peer's scratchpads --------------> memory of the peer's side
//	stores ------> BAR2  doorbells, window 0 -----------------> outbound space of the peer's controller ---> peer
//	stores ------> BAR3  window 1, and so on -----------------> the same
//
// A doorbell is a store that the peer's controller makes a message of MSI-X, at the address that the peer's
// driver had in the table when it configured its doorbells. The function itself knows of no cable. When one
// is cut, or a machine is reset, link and translations stay.
//
// The registers are those of drivers/pci/endpoint/functions/pci-epf-ntb.c, and what the controllers do is in
// drivers/pci/controller/cadence/pcie-cadence-ep.c and pcie-cadence.c beside it, in the tree of Linux 6.12. What
// these leave open:
//
//   - The firmware looks for a command every 5 ms. The model runs it when it is stored.
//   - Outbound regions may overlap, after a machine was reset. In the model the newest is used.
//   - A region passes the low bits of an address, as many as its size has, and replaces the upper ones by
//     those of its target. So a window's memory must be aligned to its size, rounded up to a power of two, which
//     the driver does not ask for.
//   - The controller has MSI, too. The model has MSI-X alone, which the driver asks for first.
//
// The model hides nothing of what the driver (drivers/ntb/hw/epf/ntb_hw_epf.c of 6.12.117) does:
//
//   - ntb_epf_mw_set_trans and ntb_epf_mw_clear_trans return 0 when the command fails.
//   - ntb_epf_mw_get_align allows window 0 the size of its BAR, of which doorbells have half; the firmware refuses that.
//   - ntb_epf_peer_mw_get_addr returns the size of the BAR behind the doorbells, whatever the peer has translated.
//   - ntb_epf_peer_db_set rings the lowest of several bits alone, and for no bit the vector that is not used.
//     It reads from the function where the doorbell is. By a cut cable that reads ones, and the store goes to
//     some other address of the kernel's.
//   - ntb_epf_db_set_mask and ntb_epf_db_clear_mask do nothing.
//   - ntb_epf_mw_to_bar takes one window more than there are.
//   - ntb_epf_link_is_up sets no speed and width, and takes the ones of a cut cable for a link.
//   - Both sides have port 0.
//
// And of the firmware:
//
//   - epf_ntb_teardown_db unmaps one doorbell, so that no region is left for a driver that is loaded for the tenth time.
//   - epf_ntb_link_up ends at a side that has no driver.
//   - epf_ntb_cmd_handler does not check a window's number.
package epf
