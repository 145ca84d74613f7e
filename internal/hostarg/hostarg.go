// Package hostarg checks names from manifests that become arguments of programs of the host, or are looked up in its directories.
//
// A name that it accepts is never a path, a pattern, or an option of a program. It must not know manifests: callers name the field.
package hostarg

import (
	"errors"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// FileSystems returns the types of file systems that may be on a disk, sorted.
func FileSystems() []string {
	return []string{
		"bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "gfs2", "hfsplus", "iso9660", "jfs", "nilfs2", "ntfs", "ocfs2",
		"squashfs", "udf", "vfat", "xfs",
	}
}

// FileSystem returns an error unless a type is one of FileSystems.
func FileSystem(name string) error {
	if !slices.Contains(FileSystems(), name) {
		return errors.New("must be one of " + strings.Join(FileSystems(), ", "))
	}
	return nil
}

var (
	hostName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`) })
	ifaceName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`) })
	targetName = sync.OnceValue(func() *regexp.Regexp {
		// RFC 3721 allows less after the colon. Nothing here is special in a path, a pattern or a record of iscsiadm.
		return regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[\pL\pN_.:+@#%=~-]+|eui\.[[:xdigit:]]{16}|naa\.([[:xdigit:]]{16}|[[:xdigit:]]{32}))$`)
	})
)

// longestName is the maximum length of names of hosts, interfaces and targets.
const longestName = 255

// host returns an error unless a string is the address or name of a host. IPv6 addresses may be in brackets.
func host(s string) error {
	name := s
	if inner, ok := strings.CutPrefix(s, "["); ok {
		name, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(name); !ok || err != nil || !a.Is6() {
			return errHost
		}
	}
	if a, err := netip.ParseAddr(name); err == nil && (a.Zone() == "" || isName(hostName(), a.Zone())) {
		return nil
	}
	if !isName(hostName(), name) {
		return errHost
	}
	return nil
}

var (
	errHost      = errors.New("must be an IP address or the name of a host")
	errPortal    = errors.New("must be an IP address or host name, with or without a port, such as 192.0.2.7 or 192.0.2.7:3260")
	errTarget    = errors.New("must be valid format: the name of a target or initiator, such as iqn.2001-04.com.example:disk, or eui. or naa. with 16 hexadecimal digits")
	errInterface = errors.New("must be the name of an interface of iscsiadm: letters, digits, and any of _ . : - after the first character")
	errValue     = errors.New("must not contain control characters")
	errText      = errors.New("must not begin with '-', or contain control characters")
)

// Portal returns an error unless a string is a host with or without a port.
func Portal(s string) error {
	name, port, err := net.SplitHostPort(s)
	if err != nil {
		name, port = s, "1"
	} else if strings.HasPrefix(s, "[") {
		name = "[" + name + "]"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host(name) != nil {
		return errPortal
	}
	return nil
}

// TargetName returns an error unless a string is the name of an iSCSI target or initiator.
func TargetName(s string) error {
	if !isName(targetName(), s) {
		return errTarget
	}
	return nil
}

// ISCSIInterface returns an error unless a string can be the name of an interface of iscsiadm, which is also that of a file.
func ISCSIInterface(s string) error {
	if !isName(ifaceName(), s) {
		return errInterface
	}
	return nil
}

// Value returns an error for a string that ends a line of the input or of a file of a program.
func Value(s string) error {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errValue
	}
	return nil
}

// Text returns an error for a string that a program could take for an option, or that ends a line of its input.
func Text(s string) error {
	if strings.HasPrefix(s, "-") || Value(s) != nil {
		return errText
	}
	return nil
}

func isName(format *regexp.Regexp, s string) bool {
	return len(s) <= longestName && format.MatchString(s)
}
