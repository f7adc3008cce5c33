package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
)

// needsFabric reports whether a map needs SDP, or links are to be owned.
func (c *Config) needsFabric() bool {
	return c.Own || slices.ContainsFunc(c.Maps, func(m Map) bool {
		return m.Transparent || m.Listen.has(networkSDP) || slices.ContainsFunc(m.Targets, func(t Endpoint) bool { return t.Network == networkSDP })
	})
}

// CheckFabric returns an error about a map that cannot be in the fabric of this process, without joining it. The error is
// one line that says what to do.
func (c *Config) CheckFabric(ctx context.Context) error {
	if !c.needsFabric() {
		return nil
	}
	f, err := findFabric()
	if err != nil {
		return fmt.Errorf("cannot find the SDP fabric: %w", err)
	}
	for _, m := range c.Maps {
		if !m.Listen.has(networkSDP) {
			continue
		}
		host, _, _ := net.SplitHostPort(m.Listen.half(networkSDP).Address)
		if own, err := f.spec.LookupHost(ctx, host); err != nil || !own {
			return explainListen(m.Listen, syscall.EADDRNOTAVAIL)
		}
	}
	return f.checkTargets(ctx, c, func(ctx context.Context, address string) error {
		host, _, err := net.SplitHostPort(address)
		if err == nil {
			_, err = f.spec.LookupHost(ctx, host)
		}
		return err
	})
}

// checkTargets returns an error about a map whose targets the fabric has not. resolve looks the address of one up.
func (f Fabric) checkTargets(ctx context.Context, c *Config, resolve func(ctx context.Context, address string) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, m := range c.Maps {
		if m.Transparent {
			if err := f.checkTransparent(&m); err != nil {
				return err
			}
		}
		for _, t := range m.Targets {
			if t.Network != networkSDP {
				continue
			}
			if err := resolve(ctx, t.Address); errors.Is(err, syscall.EHOSTUNREACH) {
				return fmt.Errorf("map %v: the target cannot be: %w", &m, err)
			}
		}
	}
	return nil
}
