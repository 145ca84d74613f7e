package remote

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// disks finds the disks of iSCSI sessions. It compares names in directories exactly: a name from a manifest is never a part of a path or of a
// pattern, with which it could be that of another session.
type disks struct {
	// dev and sys are /dev and /sys.
	dev, sys string
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
}

func hostDisks() disks {
	return disks{dev: "/dev", sys: "/sys", lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// adapter is how udev begins the link of a disk whose session is that of a PCI card.
var adapter = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^pci-[0-9a-f:.]+-$`) })

// find returns the disk of a session by the link of udev, or in sysfs; empty if there is none.
func (d disks) find(ctx context.Context, portal, iqn string, lun int32) string {
	want := fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", portal, iqn, lun)
	dir := filepath.Join(d.dev, "disk", "by-path")
	for _, name := range names(dir) {
		card, ok := strings.CutSuffix(name, want)
		if !ok || card != "" && !adapter().MatchString(card) {
			continue
		}
		if device, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
			return device
		}
	}
	sessions := filepath.Join(d.sys, "class", "iscsi_session")
	for _, name := range names(sessions) {
		if line(filepath.Join(sessions, name, "targetname")) != iqn {
			continue
		}
		session := filepath.Join(sessions, name, "device")
		if !d.connects(ctx, session, portal) {
			continue
		}
		if disk := diskOf(session, lun); disk != "" {
			return filepath.Join(d.dev, disk)
		}
	}
	return ""
}

// connects reports whether a session is one with a portal. Its target may have redirected it to another address.
func (d disks) connects(ctx context.Context, session, portal string) bool {
	host, port, err := net.SplitHostPort(portal)
	if err != nil {
		return false
	}
	for _, name := range names(session) {
		if !strings.HasPrefix(name, "connection") {
			continue
		}
		connection := filepath.Join(session, name, "iscsi_connection", name)
		for _, prefix := range []string{"persistent_", ""} {
			address := line(filepath.Join(connection, prefix+"address"))
			if address != "" && line(filepath.Join(connection, prefix+"port")) == port && d.same(ctx, address, host) {
				return true
			}
		}
	}
	return false
}

// same reports whether an address is that of a host.
func (d disks) same(ctx context.Context, address, host string) bool {
	if strings.EqualFold(address, host) {
		return true
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	if h, err := netip.ParseAddr(host); err == nil {
		return a.Unmap() == h.Unmap()
	}
	resolved, _ := d.lookup(ctx, host) // an unknown host has no address
	for _, r := range resolved {
		if r.Unmap() == a.Unmap() {
			return true
		}
	}
	return false
}

// diskOf returns the name of the disk with a number in a session, which is that of the last part of host:channel:target:lun.
func diskOf(session string, lun int32) string {
	for _, target := range names(session) {
		if !strings.HasPrefix(target, "target") {
			continue
		}
		for _, unit := range names(filepath.Join(session, target)) {
			if strings.Count(unit, ":") != 3 || !strings.HasSuffix(unit, fmt.Sprintf(":%d", lun)) {
				continue
			}
			for _, disk := range names(filepath.Join(session, target, unit, "block")) {
				return disk
			}
		}
	}
	return ""
}

// multipath returns the device that joins the paths to a disk, if there is one.
func (d disks) multipath(device string) string {
	for _, holder := range names(filepath.Join(d.sys, "class", "block", filepath.Base(device), "holders")) {
		if strings.HasPrefix(holder, "dm-") {
			return filepath.Join(d.dev, holder)
		}
	}
	return device
}

// names returns the sorted names in a directory; a missing one is empty.
func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// line returns the only line of a file of sysfs; empty if it is missing.
func line(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}
