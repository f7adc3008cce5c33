package net

import "context"

// NtbnetDial, unless nil, is asked before Dialer.DialContext. It reports by its last
// result whether it has made the connection.
var NtbnetDial func(d *Dialer, ctx context.Context, network, address string) (Conn, error, bool)

// NtbnetListen, unless nil, is asked before ListenConfig.Listen, likewise.
var NtbnetListen func(lc *ListenConfig, ctx context.Context, network, address string) (Listener, error, bool)
