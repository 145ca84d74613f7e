package network

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"monopod/internal/atomicfile"
)

const (
	// ownConfName is the file of the configuration of the default network.
	ownConfName = "10-monopod.conflist"
	// OwnName is the name of the default network, and of the directory of its allocations in DataDir/networks.
	OwnName    = "monopod"
	cniVersion = "1.0.0"
)

// ownConf determines the configuration of the default network.
type ownConf struct {
	bridge  string
	cidrs   []netip.Prefix
	mtu     int
	dataDir string
}

type (
	confList struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []any  `json:"plugins"`
	}
	bridgeConf struct {
		Type        string   `json:"type"`
		Bridge      string   `json:"bridge"`
		IsGateway   bool     `json:"isGateway"`
		IPMasq      bool     `json:"ipMasq"`
		HairpinMode bool     `json:"hairpinMode"`
		MTU         int      `json:"mtu,omitempty"`
		IPAM        ipamConf `json:"ipam"`
	}
	ipamConf struct {
		Type    string         `json:"type"`
		DataDir string         `json:"dataDir"`
		Ranges  [][]ipamRange  `json:"ranges"`
		Routes  []ipamRouteDst `json:"routes"`
	}
	ipamRange struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	ipamRouteDst struct {
		Dst string `json:"dst"`
	}
)

// list renders the configuration. Its plugin is not run: it has the name of the bridge for the next start.
func (c ownConf) list() ([]byte, error) {
	b := bridgeConf{
		Type: "bridge", Bridge: c.bridge, IsGateway: true, HairpinMode: true, MTU: c.mtu,
		IPAM: ipamConf{Type: "host-local", DataDir: allocationDir(c.dataDir)},
	}
	for _, p := range c.cidrs {
		b.IPAM.Ranges = append(b.IPAM.Ranges, []ipamRange{{Subnet: p}})
		dst := "0.0.0.0/0"
		if p.Addr().Is6() {
			dst = "::/0"
		}
		b.IPAM.Routes = append(b.IPAM.Routes, ipamRouteDst{Dst: dst})
	}
	return json.MarshalIndent(confList{CNIVersion: cniVersion, Name: OwnName, Plugins: []any{b}}, "", "  ")
}

// allocationDir contains the IP allocations, with a directory per network.
func allocationDir(dataDir string) string { return filepath.Join(dataDir, "networks") }

// storedBridge returns the bridge in the configuration of an earlier run if that has the same subnets. An invalid configuration is ignored.
func storedBridge(conf []byte, cidrs []netip.Prefix) string {
	var l struct {
		Plugins []bridgeConf `json:"plugins"`
	}
	if json.Unmarshal(conf, &l) != nil || len(l.Plugins) == 0 {
		return ""
	}
	var have []netip.Prefix
	for _, r := range l.Plugins[0].IPAM.Ranges {
		if len(r) == 1 {
			have = append(have, r[0].Subnet)
		}
	}
	if !slices.Equal(have, cidrs) {
		return ""
	}
	return l.Plugins[0].Bridge
}

// writeFile replaces a file atomically and durably, unless its content is the same.
func writeFile(path string, b []byte) error {
	if old, err := atomicfile.Read(path, atomicfile.MaxState); err == nil && string(old) == string(b) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

// dropDamagedResults removes cached results of libcni that cannot be read, with which libcni would never tear down the networks of their pods.
// Without them the current configuration is used.
func dropDamagedResults(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if b, err := atomicfile.Read(path, atomicfile.MaxState); errors.Is(err, atomicfile.ErrDamaged) || err == nil && !json.Valid(b) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}
