//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/e2e/testimages"
	"monopod/manifests"
)

// Images that stand in for those of the corpus: busybox with probed. One runs as root, the other as a user.
const (
	standIn     = "monopod.test/standin:root"
	standInUser = "monopod.test/standin:user"
)

// standIns writes the archives of both.
func (in *instance) standIns() {
	in.t.Helper()
	probed, err := os.ReadFile(filepath.Join(in.bin, "probed"))
	if err != nil {
		in.t.Fatal(err)
	}
	more := testimages.File{Path: "bin/probed", Content: probed, Mode: 0o755}
	for name, user := range map[string]string{standIn: "", standInUser: "65532:65532"} {
		img := testimages.Busybox(in.t, func(c *v1.Config) { c.User = user }, more)
		file := strings.NewReplacer("/", "-", ":", "-").Replace(name) + ".tar"
		testimages.ArchiveOf(in.t, filepath.Join(in.dir, "images", file), img, name)
	}
}

// machine replaces the files and ports of a real machine for the pods of the corpus.
type machine struct {
	t *testing.T
	// dir is a tmpfs with shared propagation, as on a machine started by systemd.
	dir   string
	paths int
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "corpus-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := unix.Mount("corpus", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, dir: dir}
}

// hostPath makes a path of the wanted type and returns it.
func (m *machine) hostPath(v *corev1.HostPathVolumeSource) string {
	m.t.Helper()
	m.paths++
	p := filepath.Join(m.dir, fmt.Sprint(m.paths), path.Base("/root"+strings.TrimSuffix(v.Path, "/")))
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	if kind == corev1.HostPathUnset && slices.Contains([]string{".sock", ".lock", ".conf", ".log", ".json", ".crt", ".key"}, path.Ext(v.Path)) {
		kind = corev1.HostPathFile
	}
	err := os.Mkdir(filepath.Dir(p), 0o755)
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectory:
		err = errors.Join(err, os.MkdirAll(p, 0o755))
	case corev1.HostPathFile:
		err = errors.Join(err, os.WriteFile(p, nil, 0o644))
	case corev1.HostPathSocket:
		l, listenErr := net.Listen("unix", p)
		err = errors.Join(err, listenErr)
		m.t.Cleanup(func() { _ = l.Close() })
	case corev1.HostPathCharDev:
		err = errors.Join(err, unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	case corev1.HostPathBlockDev:
		err = errors.Join(err, unix.Mknod(p, unix.S_IFBLK|0o660, int(unix.Mkdev(7, 200))))
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate: // is made by who is tested
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// actor rewrites one pod so that it runs anywhere and behaves like the original.
type actor struct {
	*machine
	spec *corev1.PodSpec
	fate fate
	// ports are the replacements of ports of a pod on the host network.
	ports map[int32]int32
	// served are the ports that a container serves already.
	served map[int32]bool
}

// actAs returns the pod with everything replaced that does not exist here: images, commands, paths and ports of the machine. Its
// requirements of the node and its policies are unchanged, except that probes run more often.
func (m *machine) actAs(b *borrowed, f fate, namespace string) *corev1.Pod {
	m.t.Helper()
	pod := b.pod.Object.DeepCopy()
	pod.Namespace = namespace
	a := &actor{machine: m, spec: &pod.Spec, fate: f, ports: map[int32]int32{}, served: map[int32]bool{}}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		// Without the real devices no container can be started.
		if v.HostPath != nil && path.Clean(v.HostPath.Path) != "/dev" {
			v.HostPath.Path = m.hostPath(v.HostPath)
		}
		if v.Image != nil {
			v.Image.Reference, v.Image.PullPolicy = standIn, corev1.PullIfNotPresent
		}
	}
	for i := range pod.Spec.InitContainers {
		a.container(&pod.Spec.InitContainers[i], true)
	}
	for i := range pod.Spec.Containers {
		a.container(&pod.Spec.Containers[i], false)
	}
	return pod
}

func (a *actor) container(c *corev1.Container, isInit bool) {
	nonRoot := wantsNonRoot(a.spec, c) && !rootImage(c.Image)
	once := ends(a.spec, c)
	if isInit {
		once = c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	}
	c.Image, c.ImagePullPolicy = standIn, corev1.PullIfNotPresent
	if nonRoot {
		c.Image = standInUser
	}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.SubPath != "" && slices.ContainsFunc(a.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Image != nil }) {
			m.SubPath = "etc"
		}
	}
	servers := a.servers(c)
	switch {
	case a.fate.asWritten:
	case once && (isInit || !a.fate.serves):
		c.Command, c.Args = []string{"/bin/probed", "-"}, nil
	default:
		c.Command, c.Args = append([]string{"/bin/probed", "-", "serve"}, servers...), nil
	}
}

// servers rewrites ports and probes of a container and returns what it must serve.
func (a *actor) servers(c *corev1.Container) []string {
	kinds, names := map[int32]string{}, map[string]int32{}
	for i := range c.Ports {
		p := &c.Ports[i]
		hostPort := p.HostPort != 0
		p.ContainerPort = a.portOf(p.ContainerPort)
		switch {
		case a.spec.HostNetwork:
			p.HostPort = p.ContainerPort
		case hostPort:
			p.HostPort = ports.Take(a.t)
		}
		p.HostIP = ""
		names[p.Name] = p.ContainerPort
		if p.Protocol == corev1.ProtocolTCP {
			kinds[p.ContainerPort] = "tcp"
		}
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		probe.InitialDelaySeconds, probe.PeriodSeconds, probe.TimeoutSeconds, probe.FailureThreshold = 0, 1, 10, 60
		probe.TerminationGracePeriodSeconds = nil
		h := &corev1.LifecycleHandler{Exec: probe.Exec, HTTPGet: probe.HTTPGet, TCPSocket: probe.TCPSocket}
		a.handler(h, kinds, names)
		if probe.GRPC != nil {
			probe.GRPC.Port = a.portOf(probe.GRPC.Port)
			probe.GRPC.Service = nil
			kinds[probe.GRPC.Port] = "grpc"
		}
	}
	if c.Lifecycle != nil {
		a.handler(c.Lifecycle.PostStart, kinds, names)
		a.handler(c.Lifecycle.PreStop, kinds, names)
	}
	var servers []string
	for port, kind := range kinds {
		if !a.served[port] {
			a.served[port] = true
			servers = append(servers, fmt.Sprintf("%s:%d", kind, port))
		}
	}
	slices.Sort(servers)
	return servers
}

// handler makes a hook or probe use the stand-in.
func (a *actor) handler(h *corev1.LifecycleHandler, kinds map[int32]string, names map[string]int32) {
	if h == nil {
		return
	}
	if h.Exec != nil {
		h.Exec.Command = []string{"/bin/probed", "-"}
	}
	if h.Sleep != nil {
		h.Sleep.Seconds = min(h.Sleep.Seconds, 1)
	}
	if h.HTTPGet != nil {
		h.HTTPGet.Host = a.host(h.HTTPGet.Host)
		kinds[a.asked(&h.HTTPGet.Port, names)] = strings.ToLower(string(h.HTTPGet.Scheme))
	}
	if h.TCPSocket != nil {
		h.TCPSocket.Host = a.host(h.TCPSocket.Host)
		if port := a.asked(&h.TCPSocket.Port, names); kinds[port] == "" {
			kinds[port] = "tcp"
		}
	}
}

// host returns where the stand-in listens: literal addresses are those of other machines.
func (a *actor) host(host string) string {
	if host != "" && a.spec.HostNetwork {
		return "127.0.0.1"
	}
	return ""
}

// asked returns the port of a probe, after port numbers have been replaced.
func (a *actor) asked(port *intstr.IntOrString, names map[string]int32) int32 {
	if port.Type == intstr.String {
		return names[port.StrVal]
	}
	*port = intstr.FromInt32(a.portOf(port.IntVal))
	return port.IntVal
}

// portOf returns the replacement of a port: on the host network, an unused one.
func (a *actor) portOf(port int32) int32 {
	if !a.spec.HostNetwork {
		return port
	}
	if a.ports[port] == 0 {
		a.ports[port] = ports.Take(a.t)
	}
	return a.ports[port]
}

// scene is one running pod of the corpus.
type scene struct {
	*borrowed
	fate fate
	key  string
}

// TestPodsOfOthersReachTheirPhase runs every runnable pod of the groups A and B of the corpus, with stand-ins for what does not exist here,
// and compares its phase with that of a kubelet (see expected).
func TestPodsOfOthersReachTheirPhase(t *testing.T) {
	all := borrow(t, "AB")
	m := newMachine(t)
	in := newInstance(t, manyProcessors)
	// The users of pods with hostUsers: false need access to their root file systems there.
	if err := os.Chmod(filepath.Dir(in.state), 0o711); err != nil {
		t.Fatal(err)
	}
	in.standIns()
	in.start()
	const batch = 32
	var scenes []*scene
	began := time.Now()
	play := func() {
		in.play(scenes)
		t.Logf("%d pods after %v", len(scenes), time.Since(began).Round(time.Second/10))
		scenes = nil
	}
	for i, b := range all {
		if b.pod == nil {
			t.Logf("not run: %s: %s", b, b.why)
			continue
		}
		s := &scene{borrowed: b, fate: expected(b), key: fmt.Sprintf("c%03d", i)}
		in.put(s.key, m.stageOf(b, m.actAs(b, s.fate, s.key), s.key))
		if scenes = append(scenes, s); len(scenes) == batch {
			play()
		}
	}
	play()
}

// stageOf returns the manifest of a pod and of its objects, in a namespace of its own.
func (m *machine) stageOf(b *borrowed, pod *corev1.Pod, namespace string) string {
	text := "---\n" + asJSON(pod) + "\n"
	for _, o := range b.objects {
		copied, ok := o.Object.(runtime.Object).DeepCopyObject().(interface {
			runtime.Object
			metav1.Object
		})
		if !ok || copied.GetNamespace() != "" && copied.GetNamespace() != b.pod.Object.Namespace {
			continue
		}
		switch c := copied.(type) {
		case *corev1.ConfigMap, *corev1.Secret, *nodev1.RuntimeClass:
		case *corev1.PersistentVolumeClaim:
			if c.Spec.VolumeName != "" {
				c.Spec.VolumeName = namespace + "-" + c.Spec.VolumeName
			}
		case *corev1.PersistentVolume:
			m.volume(c, namespace)
		default:
			continue
		}
		if copied.GetNamespace() != "" {
			copied.SetNamespace(namespace)
		}
		copied.GetObjectKind().SetGroupVersionKind(kindOf(o))
		text += "---\n" + asJSON(copied) + "\n"
	}
	return text
}

// volume adapts a PersistentVolume to this machine and namespace.
func (m *machine) volume(v *corev1.PersistentVolume, namespace string) {
	v.Name = namespace + "-" + v.Name
	if v.Spec.ClaimRef != nil {
		v.Spec.ClaimRef.Namespace = namespace
	}
	if v.Spec.HostPath != nil {
		v.Spec.HostPath.Path = m.hostPath(v.Spec.HostPath)
	}
	if v.Spec.Local != nil {
		v.Spec.Local.Path = m.hostPath(&corev1.HostPathVolumeSource{Path: v.Spec.Local.Path})
	}
}

func kindOf(o *manifests.Object) schema.GroupVersionKind {
	if o.Kind == "RuntimeClass" {
		return nodev1.SchemeGroupVersion.WithKind(o.Kind)
	}
	return corev1.SchemeGroupVersion.WithKind(o.Kind)
}

// play waits until all pods are as expected, and removes them.
func (in *instance) play(scenes []*scene) {
	in.t.Helper()
	wrong := map[string]error{}
	deadline := time.Now().Add(patience)
	for {
		all, err := in.podsByNamespace()
		if err != nil {
			in.t.Fatal(err)
		}
		clear(wrong)
		for _, s := range scenes {
			p, ok := all[s.key]
			if err := s.as(p, ok); err != nil {
				wrong[s.key] = err
			}
		}
		if len(wrong) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, s := range scenes {
		if err := wrong[s.key]; err != nil {
			out, _ := in.run("describe", "pod", "-n", s.key, s.pod.Object.Name)
			in.t.Errorf("%s: want %s %s (%s): %v\n%s", s, s.fate.phase, s.fate.reason, s.fate.why, err, out)
		}
		in.drop(s.key)
	}
	in.eventually("the pods are gone", func() error {
		all, err := in.podsByNamespace()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d pods left", len(all))
		}
		return err
	})
}

func (in *instance) podsByNamespace() (map[string]corev1.Pod, error) {
	list, err := in.podList()
	all := map[string]corev1.Pod{}
	for _, p := range list {
		all[p.Namespace] = p
	}
	return all, err
}

// as describes what is not yet as expected.
func (s *scene) as(p corev1.Pod, found bool) error {
	switch {
	case !found:
		return errors.New("there is no such pod")
	case p.Status.Phase != s.fate.phase:
		return fmt.Errorf("phase %s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for _, c := range all {
		if c.RestartCount > 0 && s.fate.reason != "CrashLoopBackOff" {
			return fmt.Errorf("container %s was restarted", c.Name)
		}
	}
	if s.fate.reason != "" && p.Status.Reason == s.fate.reason {
		return nil
	}
	waits := ""
	for _, c := range all {
		if w := c.State.Waiting; w != nil {
			if slices.Contains(strings.Fields(s.fate.reason), w.Reason) {
				return nil
			}
			waits += " " + w.Reason
		}
	}
	switch {
	case s.fate.reason != "":
		return fmt.Errorf("no container waits for this reason, but for%s", waits)
	case s.fate.phase == corev1.PodRunning && !isReady(p):
		return errors.New("it is not ready")
	}
	return nil
}
