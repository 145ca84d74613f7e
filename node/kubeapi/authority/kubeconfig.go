package authority

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Client is what a kubeconfig is issued for.
type Client struct {
	// User is the name of the user, Groups are the user's groups.
	User   string
	Groups []string
	// Namespace is the default namespace of the context; empty: default.
	Namespace string
	// Server is the URL of the API.
	Server string
	// Cluster is the name of the cluster, for example the node name.
	Cluster string
}

// Limits of the fields in a certificate.
const (
	maxName   = 253
	maxGroups = 32
)

// Check returns an error if no kubeconfig can be issued for the client.
func (c Client) Check() error {
	var errs []error
	text := func(what, s string) {
		if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
			errs = append(errs, fmt.Errorf("%s %q: use 1 to %d printable ASCII characters", what, s, maxName))
		}
	}
	text("user", c.User)
	if strings.HasPrefix(c.User, "system:") {
		errs = append(errs, fmt.Errorf("user %q: names that begin with system: belong to Kubernetes", c.User))
	}
	if len(c.Groups) > maxGroups {
		errs = append(errs, fmt.Errorf("%d groups: use at most %d", len(c.Groups), maxGroups))
	}
	for _, g := range c.Groups {
		text("group", g)
	}
	if c.Namespace != "" && len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("namespace %q: use lower-case letters, digits and -", c.Namespace))
	}
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, fmt.Errorf("server %q: write it as https://HOST:PORT", c.Server))
	}
	return errors.Join(errs...)
}

// extension marks clusters of kubeconfigs that this package wrote. kubectl preserves it when it edits the file.
const extension = "monopod.dev/kubeconfig"

// Parts of a kubeconfig, as in k8s.io/client-go/tools/clientcmd/api/v1.
type kubeconfig struct {
	APIVersion     string          `json:"apiVersion"`
	Kind           string          `json:"kind"`
	Clusters       []namedCluster  `json:"clusters"`
	Contexts       []namedContext  `json:"contexts"`
	CurrentContext string          `json:"current-context"`
	Preferences    map[string]bool `json:"preferences,omitempty"`
	Users          []namedUser     `json:"users"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type cluster struct {
	CA         []byte           `json:"certificate-authority-data"`
	Extensions []namedExtension `json:"extensions"`
	Server     string           `json:"server"`
}

type namedExtension struct {
	Name      string         `json:"name"`
	Extension map[string]any `json:"extension"`
}

type namedContext struct {
	Name    string      `json:"name"`
	Context kubeContext `json:"context"`
}

type kubeContext struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace,omitempty"`
	User      string `json:"user"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type user struct {
	Certificate []byte `json:"client-certificate-data"`
	Key         []byte `json:"client-key-data"`
}

// Kubeconfig returns a kubeconfig with a new client certificate.
func (a *Authority) Kubeconfig(c Client) ([]byte, error) {
	if c.Cluster == "" {
		c.Cluster = "monopod"
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	ca, err := a.Bundle()
	if err != nil {
		return nil, err
	}
	cert, key, err := a.Client(c.User, slices.Clone(c.Groups))
	if err != nil {
		return nil, err
	}
	name := c.User + "@" + c.Cluster
	return yaml.Marshal(kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Clusters: []namedCluster{{Name: c.Cluster, Cluster: cluster{
			CA: ca, Server: c.Server, Extensions: []namedExtension{{Name: extension, Extension: map[string]any{"node": c.Cluster}}},
		}}},
		Contexts: []namedContext{{Name: name, Context: kubeContext{Cluster: c.Cluster, User: name, Namespace: c.Namespace}}},
		Users:    []namedUser{{Name: name, User: user{Certificate: cert, Key: key}}},
	})
}

// IsOurs reports whether all clusters of a kubeconfig were written by this package, so that a new one may replace it.
func IsOurs(data []byte) bool {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil || k.Kind != "Config" || len(k.Clusters) == 0 {
		return false
	}
	return !slices.ContainsFunc(k.Clusters, func(c namedCluster) bool {
		return !slices.ContainsFunc(c.Cluster.Extensions, func(e namedExtension) bool { return e.Name == extension })
	})
}
