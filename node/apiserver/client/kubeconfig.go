package client

import (
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod/internal/regular"
)

// maxFile is the largest kubeconfig, certificate or token that is read.
const maxFile = 1 << 20

// ReadFile reads a kubeconfig, certificate or key of bounded size.
func ReadFile(path string) ([]byte, error) {
	return regular.ReadFile(path, maxFile)
}

// LoadKubeconfig reads a kubeconfig. Paths in it are relative to its directory.
func LoadKubeconfig(path string) (*clientcmdapi.Config, error) {
	b, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	k, err := clientcmd.Load(b)
	if err != nil {
		return nil, fmt.Errorf("%s: not a kubeconfig: %w", path, err)
	}
	for _, c := range k.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range k.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(k); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// ReadKubeconfig returns the server and the credentials of the current context.
func ReadKubeconfig(path string) (*rest.Config, error) {
	k, err := LoadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	if _, ok := k.Contexts[k.CurrentContext]; !ok { // clientcmd would take what it finds
		return nil, fmt.Errorf("%s: the current context %q does not exist", path, k.CurrentContext)
	}
	c, err := clientcmd.NewDefaultClientConfig(*k, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if u, err := url.Parse(c.Host); err != nil || u.Host == "" || u.Scheme != "https" {
		return nil, fmt.Errorf("%s: server %q is not an https URL", path, c.Host)
	}
	if p := c.ExecProvider; p != nil {
		p.InteractiveMode, p.StdinUnavailable = clientcmdapi.NeverExecInteractiveMode, true
		p.StdinUnavailableMessage = "monopod has no terminal"
	}
	return c, nil
}

// KubeconfigOf returns one for a certificate file.
func KubeconfigOf(to *clientcmdapi.Cluster, file string) *clientcmdapi.Config {
	const name = "monopod"
	k := clientcmdapi.NewConfig()
	k.Clusters[name], k.CurrentContext = to, name
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: file}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return k
}

// CurrentCluster is that of the current context.
func CurrentCluster(k *clientcmdapi.Config) (*clientcmdapi.Cluster, error) {
	if c, ok := k.Contexts[k.CurrentContext]; ok {
		if cluster, ok := k.Clusters[c.Cluster]; ok {
			return cluster, nil
		}
	}
	return nil, errors.New("it has no current context")
}
