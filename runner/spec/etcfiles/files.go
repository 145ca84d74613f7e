// Package etcfiles composes the host name, /etc/hosts and /etc/resolv.conf of a pod, as a kubelet does.
// It is pure: it returns the text, and its callers write the files.
package etcfiles

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Longest names: a host name is cut, a fully qualified one refused.
const (
	maxHostname = 63
	maxFQDN     = 64
)

// Hostname returns the name a pod's kernel reports: spec.hostname or the pod's name, fully qualified if
// setHostnameAsFQDN asks for it, and for host-network pods the machine's, nodeName.
func Hostname(pod *corev1.Pod, nodeName, clusterDomain string) (string, error) {
	if pod.Spec.HostNetwork {
		return nodeName, nil
	}
	name, err := shortHostname(pod)
	if err != nil {
		return "", err
	}
	domain := podDomain(pod, clusterDomain)
	if domain == "" || !ptr.Deref(pod.Spec.SetHostnameAsFQDN, false) {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}

// shortHostname returns the name without domain.
func shortHostname(pod *corev1.Pod) (string, error) {
	name := pod.Name
	switch {
	case pod.Spec.HostnameOverride != nil:
		name = *pod.Spec.HostnameOverride
	case pod.Spec.Hostname != "":
		name = pod.Spec.Hostname
	}
	if len(name) <= maxHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", pod.Name, name)
	}
	return cut, nil
}

// podDomain returns the domain that a subdomain puts the pod in; empty without one. Kubelet leaves a dot at the
// end when there is no cluster domain, we do not.
func podDomain(pod *corev1.Pod, clusterDomain string) string {
	if pod.Spec.Subdomain == "" || pod.Spec.HostnameOverride != nil {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain), ".")
}

// Hosts is what a pod's /etc/hosts depends on.
type Hosts struct {
	Pod *corev1.Pod
	// IPs are the pod's addresses; not needed for host-network pods.
	IPs           []string
	ClusterDomain string
	// NodeFile is the text of the machine's own /etc/hosts, for host-network pods.
	NodeFile string
}

// HostsFile returns the text of a pod's /etc/hosts.
func HostsFile(h Hosts) (string, error) {
	var b strings.Builder
	if h.Pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n" + h.NodeFile)
	} else {
		name, err := shortHostname(h.Pod)
		if err != nil {
			return "", err
		}
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		if domain := podDomain(h.Pod, h.ClusterDomain); domain != "" {
			name = name + "." + domain + "\t" + name
		}
		for _, ip := range h.IPs {
			b.WriteString(ip + "\t" + name + "\n")
		}
	}
	if len(h.Pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, a := range h.Pod.Spec.HostAliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
	return b.String(), nil
}

// Limits of resolv.conf: the C library ignores or breaks on more.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchChars  = 2048
	maxSearchDomain = 253
)

// DNS is what a pod's /etc/resolv.conf depends on.
type DNS struct {
	Pod *corev1.Pod
	// HostFile is the text of the configured resolvConf; nil when the configuration says `resolvConf: ""`.
	HostFile      *string
	ClusterDNS    []string
	ClusterDomain string
	// NodeIPs only tell which address families there are when HostFile is nil.
	NodeIPs []string
}

// resolver is a parsed resolv.conf.
type resolver struct{ servers, searches, options []string }

// ResolvConf returns the text of a pod's /etc/resolv.conf, and warnings about what had to be left out.
func ResolvConf(d DNS) (text string, warnings []string) {
	r, warnings := policyResolver(d)
	if c := d.Pod.Spec.DNSConfig; c != nil {
		r.servers = unique(append(r.servers, c.Nameservers...))
		r.searches = unique(append(r.searches, c.Searches...))
		for _, o := range c.Options {
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			r.options = setOption(r.options, option)
		}
	}
	warnings = append(warnings, r.limit()...)
	return r.String(), warnings
}

// policyResolver returns what dnsPolicy says.
func policyResolver(d DNS) (resolver, []string) {
	policy := d.Pod.Spec.DNSPolicy
	if policy == corev1.DNSNone {
		return resolver{}, nil
	}
	host, warnings := hostResolver(d)
	cluster := policy == corev1.DNSClusterFirstWithHostNet || (policy == corev1.DNSClusterFirst && !d.Pod.Spec.HostNetwork)
	switch {
	case cluster && len(d.ClusterDNS) > 0:
		if d.HostFile == nil {
			host.searches = nil
		}
		return resolver{
			servers:  slices.Clone(d.ClusterDNS),
			searches: clusterSearches(d, host.searches),
			options:  []string{"ndots:5"},
		}, warnings
	case policy == corev1.DNSClusterFirstWithHostNet:
		// Not said for ClusterFirst: that is the default, and having no cluster DNS is the normal case here.
		warnings = append(warnings, "dnsPolicy ClusterFirstWithHostNet works like Default: clusterDNS is not configured")
	}
	return host, warnings
}

// clusterSearches puts the cluster's domains before the host's.
func clusterSearches(d DNS, host []string) []string {
	if d.ClusterDomain == "" {
		return host
	}
	return unique(append([]string{
		d.Pod.Namespace + ".svc." + d.ClusterDomain, "svc." + d.ClusterDomain, d.ClusterDomain,
	}, host...))
}

// hostResolver returns the machine's resolver. Without a file it is whatever listens on the loopback interface.
func hostResolver(d DNS) (resolver, []string) {
	if d.HostFile != nil {
		return parseResolvConf(*d.HostFile)
	}
	r := resolver{searches: []string{"."}}
	for _, ip := range d.NodeIPs {
		loopback := "127.0.0.1"
		if a, err := netip.ParseAddr(ip); err == nil && a.Is6() && !a.Is4In6() {
			loopback = "::1"
		}
		r.servers = append(r.servers, loopback)
	}
	if len(r.servers) == 0 {
		r.servers = []string{"127.0.0.1"}
	}
	r.servers = unique(r.servers)
	return r, nil
}

// parseResolvConf reads a resolv.conf: nameservers add up, the last search line wins, options are replaced by name.
func parseResolvConf(text string) (resolver, []string) {
	var r resolver
	var warnings []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) == 1 {
				warnings = append(warnings, "the machine's resolv.conf has a nameserver line without an address")
				continue
			}
			r.servers = append(r.servers, fields[1])
		case "search":
			r.searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					r.searches = append(r.searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range fields[1:] {
				r.options = setOption(r.options, o)
			}
		}
	}
	return r, warnings
}

// setOption adds an option or replaces the one of the same name where it is.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if n, _, _ := strings.Cut(o, ":"); n == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

// limit drops entries above the limits, and returns the warnings of a kubelet.
func (r *resolver) limit() []string {
	var warnings []string
	if len(r.servers) > maxNameservers {
		r.servers = r.servers[:maxNameservers]
		warnings = append(warnings,
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(r.servers, " "))
	}
	n := len(r.searches)
	r.searches = r.searches[:min(n, maxSearches)]
	r.searches = slices.DeleteFunc(slices.Clone(r.searches), func(s string) bool { return len(s) > maxSearchDomain })
	for len(strings.Join(r.searches, " ")) > maxSearchChars {
		r.searches = r.searches[:len(r.searches)-1]
	}
	if len(r.searches) < n {
		warnings = append(warnings,
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(r.searches, " "))
	}
	return warnings
}

// String writes the file as the CRI plugin does.
func (r resolver) String() string {
	var b strings.Builder
	if len(r.searches) > 0 {
		b.WriteString("search " + strings.Join(r.searches, " ") + "\n")
	}
	for _, s := range r.servers {
		b.WriteString("nameserver " + s + "\n")
	}
	if len(r.options) > 0 {
		b.WriteString("options " + strings.Join(r.options, " ") + "\n")
	}
	return b.String()
}

// unique drops repetitions, keeping the first of each.
func unique(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
