package tun

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// Setup makes the devices of a node so that they stay, for a user, and configures them.
func Setup(c *Config, uid int) error {
	return c.eachPeer(func(peer int) error {
		d, err := openDevice(c.name(peer))
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.persist(true, uid); err != nil {
			return fmt.Errorf("device %s: %w", d.name, err)
		}
		return c.configure(d, peer)
	})
}

// Remove removes the devices of a node, and so their addresses and routes.
func Remove(c *Config) error {
	return c.eachPeer(func(peer int) error {
		if _, err := net.InterfaceByName(c.name(peer)); err == nil {
			d, err := openDevice(c.name(peer))
			if err != nil {
				return err
			}
			err = d.persist(false, 0)
			d.Close() // with which it goes
			if err != nil {
				return fmt.Errorf("device %s: %w", d.name, err)
			}
		}
		return needsRoot(c.unreach(removeRoute))
	})
}

// eachPeer calls f for each peer.
func (c *Config) eachPeer(f func(peer int) error) error {
	for peer := 1; peer <= c.Nodes; peer++ {
		if peer == c.Self {
			continue
		}
		if err := f(peer); err != nil {
			return err
		}
	}
	return nil
}

// configure gives a device its MTU, addresses and routes, and has it up.
func (c *Config) configure(d *device, peer int) error {
	err := c.tryConfigure(d, peer)
	if err != nil {
		return needsRoot(fmt.Errorf("device %s: %w", d.name, err))
	}
	return nil
}

func needsRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: that needs CAP_NET_ADMIN", err)
	}
	return err
}

func (c *Config) tryConfigure(d *device, peer int) error {
	if err := d.up(c.MTU); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	if !c.Addresses {
		return nil
	}
	// While the peer is not there, its routes do not count, and a connect fails at once.
	for _, family := range []string{"ipv4", "ipv6"} {
		path := fmt.Sprintf("/proc/sys/net/%s/conf/%s/ignore_routes_with_linkdown", family, d.name)
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) { // there is no IPv6
			return err
		}
	}
	for _, p := range c.networks() {
		if err := d.address(addressOf(p, c.Self), addressOf(p, peer)); err != nil {
			return fmt.Errorf("address %v: %w", addressOf(p, c.Self), err)
		}
	}
	for _, p := range c.routes(peer) {
		if err := netlink.RouteReplace(route(d.index, p)); err != nil {
			return fmt.Errorf("route %v: %w", p, err)
		}
	}
	return c.unreach(netlink.RouteReplace)
}

// unreach makes what no peer answers for unreachable, or undoes that. Otherwise a default route would have it.
func (c *Config) unreach(change func(*netlink.Route) error) error {
	for _, p := range c.networks() {
		if err := change(route(0, p)); err != nil {
			return fmt.Errorf("route %v: %w", p, err)
		}
	}
	return nil
}
