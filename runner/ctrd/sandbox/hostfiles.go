package sandbox

import (
	"errors"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/regular"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/podfiles"
	"monopod/runner/ctrd/record"
	"monopod/runner/spec"
	"monopod/runner/spec/etcfiles"
)

// Files writes the files that all containers of a pod share, and describes for specs what they share.
type Files struct {
	Dirs       layout.Dirs
	PodCgroups *cgroup.Pods

	NodeName string
	// NodeIPs returns the current addresses of the node.
	NodeIPs       func() []string
	ClusterDomain string
	// Nameservers are those of pods; if empty, those that Resolver returns, which may be nil.
	Nameservers []string
	Resolver    func() []string
	// ResolvConf is the host's resolver configuration; empty: none.
	ResolvConf string
	Log        *slog.Logger
}

// SpecSandbox describes what the containers of a sandbox share.
func (r *Files) SpecSandbox(pod *corev1.Pod, rec *record.Sandbox) (spec.Sandbox, error) {
	name, err := etcfiles.Hostname(pod, r.NodeName, r.ClusterDomain)
	if err != nil {
		return spec.Sandbox{}, err
	}
	f := r.PodFiles(rec)
	s := spec.Sandbox{
		ID:             rec.ID,
		Cgroup:         rec.Meta.Cgroup,
		Hostname:       name,
		IPs:            rec.Network.IPs,
		HostsPath:      f.Hosts(),
		HostnamePath:   f.Hostname(),
		ResolvConfPath: f.ResolvConf(),
	}
	ns := NamespacesOf(pod)
	if ns.Net {
		s.NetNS = r.Dirs.Path("ns", rec.ID, "net")
	}
	if ns.UTS {
		s.UTSNS = r.Dirs.Path("ns", rec.ID, "uts")
	}
	if rec.Meta.FirstID > 0 {
		s.UserNS, s.FirstID = r.Dirs.Path("ns", rec.ID, "user"), rec.Meta.FirstID
	}
	if sharesProcesses(pod) {
		s.PIDNS = r.Dirs.Path("ns", rec.ID, "pid")
	}
	if ns.IPC {
		s.IPCNS = r.Dirs.Path("ns", rec.ID, "ipc")
		s.ShmPath = r.Dirs.ShmDir(rec.ID)
	}
	return s, nil
}

// NewMessage creates the file behind terminationMessagePath of a new container, if it has one. It also creates the files that the
// containers of the pod share if some are missing, because the agent was killed while it wrote them.
func (r *Files) NewMessage(sb *record.Sandbox, c *corev1.Container, id string) (string, error) {
	d := r.PodFiles(sb)
	if !d.Complete() {
		if err := r.writeFiles(sb); err != nil {
			return "", err
		}
	}
	if c.TerminationMessagePath == "" {
		return "", nil
	}
	return d.NewMessage(id)
}

// NamespacesOf returns which namespaces the containers of a pod share, without hostname and sysctls.
func NamespacesOf(pod *corev1.Pod) linuxns.Set {
	return linuxns.Set{
		Net: !pod.Spec.HostNetwork,
		UTS: !pod.Spec.HostNetwork,
		IPC: !pod.Spec.HostIPC,
	}
}

// PodFiles returns the directory of the shared files of a sandbox.
func (r *Files) PodFiles(rec *record.Sandbox) podfiles.Dir {
	return podfiles.Dir{Path: r.Dirs.PodFilesDir(rec.Meta.UID), Owner: int(rec.Meta.FirstID)}
}

func (r *Files) writeFiles(rec *record.Sandbox) error {
	if err := os.MkdirAll(r.Dirs.PodDir(rec.Meta.UID), 0o750); err != nil {
		return err
	}
	f, warnings, err := r.fileTexts(rec)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		r.Log.Warn(w, "pod", rec.Meta.Key.String())
	}
	return r.PodFiles(rec).Write(f)
}

// fileTexts returns the content of the files, and warnings about what had to be left out.
func (r *Files) fileTexts(rec *record.Sandbox) (f podfiles.Files, warnings []string, err error) {
	name, err := etcfiles.Hostname(rec.Pod.Object, r.NodeName, r.ClusterDomain)
	if err != nil {
		return f, nil, err
	}
	f.Hostname = name + "\n"
	f.ResolvConf, warnings = etcfiles.ResolvConf(etcfiles.DNS{
		Pod:           rec.Pod.Object,
		HostFile:      r.hostResolvConf(),
		ClusterDNS:    r.clusterDNS(),
		ClusterDomain: r.ClusterDomain,
		NodeIPs:       r.NodeIPs(),
	})
	f.Hosts, err = r.hostsText(rec)
	return f, warnings, err
}

// clusterDNS returns the resolvers of pods with dnsPolicy ClusterFirst.
func (r *Files) clusterDNS() []string {
	if len(r.Nameservers) > 0 || r.Resolver == nil {
		return r.Nameservers
	}
	return r.Resolver()
}

// maxHostFile is the maximum size of the host's /etc/hosts and resolv.conf, which are copied into each pod.
const maxHostFile = 4 << 20

// hostResolvConf returns the host's resolver file; nil if none is configured.
func (r *Files) hostResolvConf() *string {
	if r.ResolvConf == "" {
		return nil
	}
	b, err := regular.ReadFile(r.ResolvConf, maxHostFile)
	if err != nil {
		r.Log.Warn("read the host's resolver configuration", "err", err)
	}
	text := string(b)
	return &text
}

// writeHosts writes /etc/hosts in place, because containers have the file bind-mounted. If the agent was killed before it had
// created all files of a new pod, this creates them.
func (r *Files) writeHosts(rec *record.Sandbox) error {
	f, _, err := r.fileTexts(rec)
	if err != nil {
		return err
	}
	if err = r.PodFiles(rec).WriteHosts(f); errors.Is(err, os.ErrNotExist) {
		return r.writeFiles(rec)
	}
	return err
}

// hostsText returns the content of /etc/hosts.
func (r *Files) hostsText(rec *record.Sandbox) (string, error) {
	var node []byte
	if rec.Pod.Object.Spec.HostNetwork {
		var err error
		if node, err = regular.ReadFile("/etc/hosts", maxHostFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return etcfiles.HostsFile(etcfiles.Hosts{
		Pod:           rec.Pod.Object,
		IPs:           rec.Network.IPs,
		ClusterDomain: r.ClusterDomain,
		NodeFile:      string(node),
	})
}
