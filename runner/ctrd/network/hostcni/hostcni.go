// Package hostcni finds the CNI configuration of a directory of the host, and the pods that CNI plugins have connected. It must not call plugins
// or decide which network is used. It has no goroutines.
package hostcni

import (
	"fmt"

	"github.com/containerd/go-cni"
	"github.com/containernetworking/cni/libcni"
)

// Default is where other programs put their CNI configurations.
const Default = "/etc/cni/net.d"

// Exists reports whether dir contains a CNI configuration; an empty dir does not.
func Exists(dir string) (bool, error) {
	if dir == "" {
		return false, nil
	}
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return false, fmt.Errorf("look for a CNI configuration in %s: %w", dir, err)
	}
	return len(files) > 0, nil
}

// Find returns the configuration in dir that containerd's CRI plugin would choose, or nil.
func Find(dir string, binDirs []string) (*libcni.NetworkConfigList, error) {
	if found, err := Exists(dir); err != nil || !found {
		return nil, err
	}
	c, err := cni.New(cni.WithPluginConfDir(dir), cni.WithPluginDir(binDirs), cni.WithDefaultConf)
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes([]byte(c.GetConfig().Networks[0].Config.Source))
	if err != nil {
		return nil, fmt.Errorf("CNI configuration in %s: %w", dir, err)
	}
	return list, nil
}

// Attached returns how many pods CNI plugins have connected to a network other than own, as libcni has recorded it below dataDir. Early
// versions of monopod called plugins for its own network too.
func Attached(dataDir, own string) (int, error) {
	all, err := libcni.NewCNIConfigWithCacheDir(nil, dataDir, nil).GetCachedAttachments("")
	if err != nil {
		return 0, fmt.Errorf("read which pods are on a CNI network: %w", err)
	}
	pods := map[string]bool{}
	for _, a := range all {
		if a.Network != own {
			pods[a.ContainerID] = true
		}
	}
	return len(pods), nil
}
