package remote

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const nfsPackages = "nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL, Alpine, Arch) or nfs-client (SUSE)"

// NFS mounts an export at target, unless it is mounted there.
func (m *Mounter) NFS(target string, source *corev1.NFSVolumeSource, readOnly bool, options []string) error {
	mount, err := tool("mount.nfs", nfsPackages)
	if err != nil {
		return err
	}
	from, args := nfsCommand(source, readOnly, options)
	return m.mount(target, from, func(ctx context.Context) error {
		_, err := run(ctx, mount, slices.Concat([]string{from, target}, args)...)
		return err
	})
}

// nfsCommand returns the export as mount.nfs writes it, and the options behind it.
func nfsCommand(source *corev1.NFSVolumeSource, readOnly bool, options []string) (from string, args []string) {
	server := source.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	if readOnly || source.ReadOnly {
		options = slices.Concat(options, []string{"ro"})
	}
	if len(options) > 0 {
		args = []string{"-o", strings.Join(options, ",")}
	}
	return server + ":" + source.Path, args
}
