package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
)

const iscsiPackages = "open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Fedora, RHEL), and start its service"

const (
	// defaultPort is the port of portals without one.
	defaultPort = "3260"
	// deviceTimeout is how long a disk may take to appear after a login.
	deviceTimeout = 10 * time.Second
	devicePoll    = 100 * time.Millisecond
)

// Exit codes of iscsiadm.
const (
	sessionExists = 15
	noObjects     = 21
)

// LUN is an iSCSI disk for one volume of a pod.
type LUN struct {
	Source *corev1.ISCSIVolumeSource
	// Volume is the name of the pod's volume.
	Volume string
	// Secret has the CHAP logins; nil: none.
	Secret   map[string][]byte
	ReadOnly bool
	Options  []string
	// Block requests the device instead of its file system.
	Block bool
}

// session is the login of a volume. It is written to <pod directory>/iscsi/<volume> first, so that it is always known what to log
// out of.
type session struct {
	Portals []string `json:"portals"`
	IQN     string   `json:"iqn"`
	Iface   string   `json:"iface"`
	// Own is set if the interface was created for this volume.
	Own bool `json:"own,omitempty"`
}

const sessionDir = "iscsi"

func (l *LUN) session() session {
	s := session{IQN: l.Source.IQN, Iface: l.Source.ISCSIInterface}
	if s.Iface == "" {
		s.Iface = "default"
	}
	for _, p := range append([]string{l.Source.TargetPortal}, l.Source.Portals...) {
		if p = withPort(p); !slices.Contains(s.Portals, p) {
			s.Portals = append(s.Portals, p)
		}
	}
	if l.Source.InitiatorName != nil {
		s.Iface, s.Own = s.Portals[0]+":"+l.Volume, true
	}
	return s
}

func withPort(portal string) string {
	if _, _, err := net.SplitHostPort(portal); err == nil {
		return portal
	}
	return net.JoinHostPort(strings.Trim(portal, "[]"), defaultPort)
}

// ISCSI logs in to a target and returns the path of the volume: where its file system is mounted, or its device.
func (m *Mounter) ISCSI(podDir string, l LUN) (string, error) {
	iscsiadm, err := tool("iscsiadm", iscsiPackages)
	if err != nil {
		return "", err
	}
	s := l.session()
	if err := s.write(filepath.Join(podDir, sessionDir, l.Volume)); err != nil {
		return "", err
	}
	target := Target(podDir, "iscsi", l.Volume)
	c := client{m: m, path: iscsiadm, s: s, lun: &l}
	if l.Block {
		path := filepath.Join(podDir, sessionDir, l.Volume+".device")
		return path, m.try(target, "log in to "+s.IQN, func(ctx context.Context) error {
			device, err := c.attach(ctx)
			if err != nil {
				return err
			}
			if old, err := os.Readlink(path); err == nil && old == device {
				return nil
			}
			_ = os.Remove(path)
			return os.Symlink(device, path)
		})
	}
	return target, m.mount(target, s.IQN, func(ctx context.Context) error {
		device, err := c.attach(ctx)
		if err != nil {
			return err
		}
		fsType := l.Source.FSType
		return Disk{Device: device, FSType: fsType, ReadOnly: l.ReadOnly, Options: l.Options}.mount(ctx, target)
	})
}

// Logout logs out of all targets of a pod with unmounted volumes, except those that other pods in the directory of all pods use.
func (m *Mounter) Logout(podDir string) error {
	var errs []error
	for volume, s := range sessions(podDir) {
		path := filepath.Join(podDir, sessionDir, volume)
		iscsiadm, err := tool("iscsiadm", iscsiPackages)
		if err != nil {
			return err
		}
		c := client{m: m, path: iscsiadm, s: s}
		errs = append(errs, m.try("log out "+path, "log out of "+s.IQN, func(ctx context.Context) error {
			defer m.lock(s.IQN)()
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := c.logout(ctx, used(filepath.Dir(podDir))); err != nil {
				return errors.Join(err, s.write(path)) // so that it is retried
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// sessions reads what the volumes of a pod have logged in to.
func sessions(podDir string) map[string]session {
	all := map[string]session{}
	entries, _ := os.ReadDir(filepath.Join(podDir, sessionDir)) // it is usually missing
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // an incomplete one
		}
		var s session
		data, err := atomicfile.Read(filepath.Join(podDir, sessionDir, e.Name()), atomicfile.MaxState)
		if err == nil && json.Unmarshal(data, &s) == nil {
			all[e.Name()] = s
		}
	}
	return all
}

// used returns the portals that pods use, as portal, name and interface.
func used(podsDir string) map[string]bool {
	all := map[string]bool{}
	entries, _ := os.ReadDir(podsDir)
	for _, e := range entries {
		for _, s := range sessions(filepath.Join(podsDir, e.Name())) {
			for _, p := range s.Portals {
				all[p+" "+s.IQN+" "+s.Iface] = true
			}
		}
	}
	return all
}

func (s session) write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if old, err := atomicfile.Read(path, atomicfile.MaxState); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}

// lock serializes logins and logouts of a target, and returns the function that unlocks.
func (m *Mounter) lock(iqn string) func() {
	for {
		m.mu.Lock()
		busy := m.targets[iqn]
		if busy == nil {
			free := make(chan struct{})
			m.targets[iqn] = free
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.targets, iqn)
				m.mu.Unlock()
				close(free)
			}
		}
		m.mu.Unlock()
		<-busy
	}
}

// client calls iscsiadm for one target.
type client struct {
	m    *Mounter
	path string
	s    session
	lun  *LUN
}

func (c *client) run(ctx context.Context, args ...string) (string, error) {
	return run(ctx, c.path, args...)
}

// attach logs in to all portals and returns the device. One successful portal is enough.
func (c *client) attach(ctx context.Context) (string, error) {
	defer c.m.lock(c.s.IQN)()
	if err := c.ensureIface(ctx); err != nil {
		return "", err
	}
	var errs []error
	var device string
	for _, portal := range c.s.Portals {
		found, err := c.login(ctx, portal)
		if err != nil {
			errs = append(errs, fmt.Errorf("portal %s: %w", portal, err))
			continue
		}
		if device == "" {
			device = found
		}
	}
	if device == "" {
		return "", errors.Join(errs...)
	}
	return multipath(device), nil
}

// ensureIface creates an interface with the requested initiator name, otherwise like the one that the volume names.
func (c *client) ensureIface(ctx context.Context) error {
	if !c.s.Own {
		return nil
	}
	base := c.lun.Source.ISCSIInterface
	if base == "" {
		base = "default"
	}
	text, err := c.run(ctx, "-m", "iface", "-I", base, "-o", "show")
	if err != nil {
		return err
	}
	if _, err := c.run(ctx, "-m", "iface", "-I", c.s.Iface, "-o", "new"); err != nil && exitCode(err) != sessionExists {
		return err
	}
	set := [][2]string{{"iface.initiatorname", *c.lun.Source.InitiatorName}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		if strings.HasPrefix(key, "iface.") && key != "iface.iscsi_ifacename" && key != "iface.initiatorname" && value != "" && value != "<empty>" {
			set = append(set, [2]string{key, value})
		}
	}
	for _, kv := range set {
		if _, err := c.run(ctx, "-m", "iface", "-I", c.s.Iface, "-o", "update", "-n", kv[0], "-v", kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// login discovers a target at a portal, logs in, and waits for the disk.
func (c *client) login(ctx context.Context, portal string) (string, error) {
	if device := c.device(portal); device != "" {
		return device, nil
	}
	discovery := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", c.s.Iface}
	node := c.node(portal)
	steps := [][]string{append(slices.Clone(discovery), "-o", "new")}
	if c.lun.Source.DiscoveryCHAPAuth {
		steps = append(steps, c.chap(discovery, "discovery.sendtargets.auth.")...)
	}
	steps = append(steps, append(slices.Clone(discovery), "--discover"))
	if c.lun.Source.SessionCHAPAuth {
		steps = append(steps, c.chap(node, "node.session.auth.")...)
	}
	// Not automatically at boot: the agent logs in again before the pod starts.
	steps = append(steps, append(slices.Clone(node), "-o", "update", "-n", "node.startup", "-v", "manual"), append(slices.Clone(node), "--login"))
	for _, args := range steps {
		if _, err := c.run(ctx, args...); err != nil && exitCode(err) != sessionExists {
			return "", withoutSecrets(err, c.lun.Secret)
		}
	}
	for deadline := time.Now().Add(deviceTimeout); ; {
		if device := c.device(portal); device != "" {
			return device, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("logged in, but LUN %d has not appeared within %s", c.lun.Source.Lun, deviceTimeout)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(devicePoll):
		}
	}
}

// withoutSecrets removes logins from the output of a tool.
func withoutSecrets(err error, secret map[string][]byte) error {
	text := err.Error()
	for _, value := range secret {
		if len(value) > 0 && strings.Contains(text, string(value)) {
			return errors.New("iscsiadm failed; its output contains the login and is not shown")
		}
	}
	return err
}

func (c *client) node(portal string) []string {
	return []string{"-m", "node", "-p", portal, "-T", c.s.IQN, "-I", c.s.Iface}
}

// chap returns the commands that set the login of a record.
func (c *client) chap(record []string, prefix string) [][]string {
	steps := [][]string{append(slices.Clone(record), "-o", "update", "-n", prefix+"authmethod", "-v", "CHAP")}
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		if value := c.lun.Secret[prefix+key]; len(value) > 0 {
			steps = append(steps, append(slices.Clone(record), "-o", "update", "-n", prefix+key, "-v", string(value)))
		}
	}
	return steps
}

// device finds the disk of a portal by the link of udev, or in sysfs.
func (c *client) device(portal string) string {
	name := fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", portal, c.s.IQN, c.lun.Source.Lun)
	for _, pattern := range []string{name, "pci-*-" + name} {
		links, _ := filepath.Glob(filepath.Join("/dev/disk/by-path", strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)))
		for _, link := range links {
			if device, err := filepath.EvalSymlinks(link); err == nil {
				return device
			}
		}
	}
	if len(c.s.Portals) > 1 {
		return "" // with several sessions it is not known which is this portal's
	}
	found, _ := filepath.Glob("/sys/class/iscsi_session/session*/targetname")
	for _, path := range found {
		if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != c.s.IQN {
			continue
		}
		disks, _ := filepath.Glob(filepath.Join(filepath.Dir(path), fmt.Sprintf("device/target*/*:*:*:%d/block/*", c.lun.Source.Lun)))
		for _, d := range disks {
			return filepath.Join("/dev", filepath.Base(d))
		}
	}
	return ""
}

// multipath returns the device that joins the paths to a disk, if there is one.
func multipath(device string) string {
	holders, _ := filepath.Glob(filepath.Join("/sys/class/block", filepath.Base(device), "holders", "dm-*"))
	if len(holders) > 0 {
		return filepath.Join("/dev", filepath.Base(holders[0]))
	}
	return device
}

// logout ends the sessions that no other pod uses.
func (c *client) logout(ctx context.Context, inUse map[string]bool) error {
	var errs []error
	ended := false
	for _, portal := range c.s.Portals {
		if inUse[portal+" "+c.s.IQN+" "+c.s.Iface] {
			continue
		}
		ended = true
		for _, last := range [][]string{{"--logout"}, {"-o", "delete"}} {
			if _, err := c.run(ctx, append(c.node(portal), last...)...); err != nil && exitCode(err) != noObjects {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil || !ended || !c.s.Own {
		return err
	}
	_, err := c.run(ctx, "-m", "iface", "-I", c.s.Iface, "-o", "delete")
	return err
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}
