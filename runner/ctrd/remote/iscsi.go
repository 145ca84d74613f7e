package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const iscsiPackages = "open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Fedora, RHEL), and start its service"

const (
	// defaultPort is the port of portals without one.
	defaultPort      = "3260"
	defaultInterface = "default"
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

// ISCSI logs in to a target and returns the path of the volume: where its file system is mounted, or its device.
func (m *Mounter) ISCSI(podDir string, l LUN) (string, error) {
	iscsiadm, err := tool("iscsiadm", iscsiPackages)
	if err != nil {
		return "", err
	}
	s := l.session()
	if err := l.check(s); err != nil {
		return "", err
	}
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
		if s.check() != nil { // by an older release; iscsiadm must not get such names, which could be those of other files
			errs = append(errs, os.Remove(path))
			continue
		}
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
	return c.m.disks.multipath(device), nil
}

// ensureIface creates an interface with the requested initiator name, otherwise like the one that the volume names.
func (c *client) ensureIface(ctx context.Context) error {
	if !c.s.Own {
		return nil
	}
	base := cmp.Or(c.lun.Source.ISCSIInterface, defaultInterface)
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

// device finds the disk of a portal, once this machine is logged in.
func (c *client) device(ctx context.Context, portal string) string {
	return c.m.disks.find(ctx, portal, c.s.IQN, c.lun.Source.Lun)
}

// login discovers a target at a portal, logs in, and waits for the disk.
func (c *client) login(ctx context.Context, portal string) (string, error) {
	if device := c.device(ctx, portal); device != "" {
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
		if device := c.device(ctx, portal); device != "" {
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
		if value := chapValue(c.lun.Secret[prefix+key]); value != "" {
			steps = append(steps, append(slices.Clone(record), "-o", "update", "-n", prefix+key, "-v", value))
		}
	}
	return steps
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
