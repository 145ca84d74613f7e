package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"monopod/internal/hostarg"
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
	if err := d.check(); err != nil {
		return err
	}
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
	if hostarg.FileSystem(fsType) != nil {
		return fmt.Errorf("%s has %s on it, which cannot be mounted", d.Device, fsType)
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

// check returns an error for what a manifest must not make the machine do. Manifests were checked when they were read, but not those of pods
// that an older release started.
func (d Disk) check() error {
	if !filepath.IsAbs(d.Device) {
		return fmt.Errorf("the path of the device, %q, is not absolute", d.Device)
	}
	for _, o := range d.Options {
		if err := hostarg.Text(o); err != nil {
			return fmt.Errorf("mount option %q: %w", o, err)
		}
	}
	if d.FSType == "" {
		return nil
	}
	if err := hostarg.FileSystem(d.FSType); err != nil {
		return fmt.Errorf("fsType %q: %w", d.FSType, err)
	}
	return nil
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

// maker is the program that creates a file system, and the package that contains it.
type maker struct {
	program, install string
	args             []string
}

// makers are the programs that create file systems, by type. Only they run, so that no type is a part of a path.
func makers() map[string]maker {
	ext := []string{"-F", "-m0"}
	return map[string]maker{
		"bcachefs": {"mkfs.bcachefs", "bcachefs-tools", nil},
		"btrfs":    {"mkfs.btrfs", "btrfs-progs", nil},
		"exfat":    {"mkfs.exfat", "exfatprogs", nil},
		"ext2":     {"mkfs.ext2", "e2fsprogs", ext},
		"ext3":     {"mkfs.ext3", "e2fsprogs", ext},
		"ext4":     {"mkfs.ext4", "e2fsprogs", ext},
		"f2fs":     {"mkfs.f2fs", "f2fs-tools", nil},
		"jfs":      {"mkfs.jfs", "jfsutils", nil},
		"nilfs2":   {"mkfs.nilfs2", "nilfs-tools", nil},
		"ntfs":     {"mkfs.ntfs", "ntfs-3g", nil},
		"vfat":     {"mkfs.vfat", "dosfstools", nil},
		"xfs":      {"mkfs.xfs", "xfsprogs", nil},
	}
}

func format(ctx context.Context, device, fsType string) error {
	m, ok := makers()[fsType]
	if !ok {
		return fmt.Errorf("%s is empty, and monopod cannot create a file system of type %s: create it, or use ext4", device, fsType)
	}
	mkfs, err := tool(m.program, m.install)
	if err != nil {
		return err
	}
	_, err = run(ctx, mkfs, append(m.args, device)...)
	return err
}
