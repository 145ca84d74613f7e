package remote

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monopod/internal/atomicfile"
	"monopod/internal/hostarg"
)

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
	s := session{IQN: l.Source.IQN, Iface: cmp.Or(l.Source.ISCSIInterface, defaultInterface)}
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

// check returns an error for names that iscsiadm must not get: it uses them as names of files, and of records of other sessions.
func (s session) check() error {
	for _, p := range s.Portals {
		if err := hostarg.Portal(p); err != nil {
			return fmt.Errorf("portal %q: %w", p, err)
		}
	}
	if err := hostarg.TargetName(s.IQN); err != nil {
		return fmt.Errorf("iqn %q: %w", s.IQN, err)
	}
	if s.Own { // its interface is named after the portal and the volume
		return nil
	}
	return checkInterface(s.Iface)
}

func checkInterface(name string) error {
	if err := hostarg.ISCSIInterface(name); err != nil {
		return fmt.Errorf("iscsiInterface %q: %w", name, err)
	}
	return nil
}

// check returns an error for what a manifest must not make the machine do. Manifests were checked when they were read, but not those of pods
// that an older release started.
func (l *LUN) check(s session) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := checkInterface(cmp.Or(l.Source.ISCSIInterface, defaultInterface)); err != nil {
		return err
	}
	if name := l.Source.InitiatorName; name != nil {
		if err := hostarg.TargetName(*name); err != nil {
			return fmt.Errorf("initiatorName %q: %w", *name, err)
		}
	}
	for key, value := range l.Secret {
		if hostarg.Value(chapValue(value)) != nil {
			return fmt.Errorf("the value of %s in the secret has control characters", key)
		}
	}
	return nil
}

// chapValue returns a value of a Secret without the line feed with which many are made.
func chapValue(value []byte) string { return strings.TrimRight(string(value), "\r\n") }

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
