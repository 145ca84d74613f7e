package remote

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/hostarg"
)

const nfsPackages = "nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL, Alpine, Arch) or nfs-client (SUSE)"

// NFS mounts an export at target, unless it is mounted there.
func (m *Mounter) NFS(target string, source *corev1.NFSVolumeSource, readOnly bool, options []string) error {
	if err := checkNFS(source, options); err != nil {
		return err
	}
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

// checkNFS returns an error for what mount.nfs must not get. Manifests were checked when they were read, but not those of pods that an older
// release started.
func checkNFS(source *corev1.NFSVolumeSource, options []string) error {
	for _, text := range slices.Concat([]string{source.Server, source.Path}, options) {
		if err := hostarg.Text(text); err != nil {
			return fmt.Errorf("server, path or mount option %q: %w", text, err)
		}
	}
	return nil
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
