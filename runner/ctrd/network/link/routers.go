package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// acceptRA returns the sysctl that makes a device heed router advertisements.
func acceptRA(device string) string { return "ipv6/conf/" + device + "/accept_ra" }

// HeedsRouters reports whether a device heeds router advertisements in the namespace of the calling thread. Any pod with NET_RAW can send
// them, and would become the router of a host that heeds them (CVE-2020-10749).
func HeedsRouters(device string) bool {
	value, err := os.ReadFile("/proc/sys/net/" + acceptRA(device))
	return err == nil && !bytes.Equal(bytes.TrimSpace(value), []byte("0"))
}

// IgnoreRouters makes a device ignore router advertisements. What it has learned from earlier ones stays.
func IgnoreRouters(device string) error {
	if !HeedsRouters(device) { // perhaps because it has no IPv6
		return nil
	}
	err := write(acceptRA(device), "0")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // the device is gone
	}
	if err != nil {
		return fmt.Errorf("make %s ignore router advertisements: %w", device, err)
	}
	return nil
}

// IgnoreRoutersOn makes the host ends that are attached to a bridge ignore router advertisements.
func IgnoreRoutersOn(bridge int) error {
	ports, err := Ports()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ports {
		if p.Master == bridge && p.HeedsRouters {
			errs = append(errs, IgnoreRouters(p.Name))
		}
	}
	return errors.Join(errs...)
}
