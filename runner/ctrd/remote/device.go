package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// Disk is a block device with a file system, or one that will get one.
type Disk struct {
	// Device is its path.
	Device string
	// FSType is the type of the file system; empty: the existing one, or ext4.
	FSType   string
	ReadOnly bool
	Options  []string
}

// Disk mounts a device at target, unless it is mounted there. It creates a file system on an empty device.
func (m *Mounter) Disk(target string, d Disk) error {
	return m.mount(target, d.Device, func(ctx context.Context) error { return d.mount(ctx, target) })
}

func (d Disk) mount(ctx context.Context, target string) error {
	has, err := contentOf(ctx, d.Device)
	if err != nil {
		return err
	}
	fsType := d.FSType
	switch {
	case has == "" && d.ReadOnly:
		return fmt.Errorf("%s is empty and read-only", d.Device)
	case has == "":
		if fsType == "" {
			fsType = "ext4"
		}
		if err := format(ctx, d.Device, fsType); err != nil {
			return err
		}
	case fsType != "" && fsType != has:
		return fmt.Errorf("%s has %s on it, not %s: it is not overwritten", d.Device, has, fsType)
	default:
		fsType = has
	}
	at := func(options ...string) error {
		return mount.All([]mount.Mount{{Type: fsType, Source: d.Device, Options: slices.Concat(d.Options, options)}}, target)
	}
	if !d.ReadOnly {
		return at()
	}
	err = at("ro")
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	// Another pod has it mounted read-write. All mounts of a file system are writable or none, unless a single mount is made
	// read-only.
	if err := at(); err != nil {
		return err
	}
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

// contentOf returns the type of the content of a device; empty for an empty device.
func contentOf(ctx context.Context, device string) (string, error) {
	blkid, err := tool("blkid", "util-linux")
	if err != nil {
		return "", err
	}
	// blkid reports an unreadable device as empty.
	if err := readable(device); err != nil {
		return "", err
	}
	out, err := run(ctx, blkid, "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	table := ""
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE":
			return value, nil
		case "PTTYPE":
			table = "a partition table (" + value + ")"
		}
	}
	if table == "" {
		return "", fmt.Errorf("cannot detect the content of %s", device)
	}
	return table, nil
}

func readable(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.ReadFull(f, make([]byte, 4096))
	return err
}

func format(ctx context.Context, device, fsType string) error {
	install := map[string]string{"ext4": "e2fsprogs", "ext3": "e2fsprogs", "ext2": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}[fsType]
	if install == "" {
		install = "the tools of " + fsType
	}
	mkfs, err := tool("mkfs."+fsType, install)
	if err != nil {
		return err
	}
	var args []string
	if strings.HasPrefix(fsType, "ext") {
		args = []string{"-F", "-m0"}
	}
	_, err = run(ctx, mkfs, append(args, device)...)
	return err
}
