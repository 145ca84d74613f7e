package validate

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podSpec checks the fields of the spec that belong to none of the larger topics.
func (c *checker) podSpec(path *field.Path) {
	spec := &c.pod.Spec
	oneOf(c, path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if spec.ServiceAccountName != "" {
		c.invalid(path.Child("serviceAccountName"), spec.ServiceAccountName, apivalidation.ValidateServiceAccountName(spec.ServiceAccountName, false)...)
	}
	if spec.ActiveDeadlineSeconds != nil && (*spec.ActiveDeadlineSeconds < 1 || *spec.ActiveDeadlineSeconds > math.MaxInt32) {
		c.invalid(path.Child("activeDeadlineSeconds"), *spec.ActiveDeadlineSeconds, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	for i, gate := range spec.ReadinessGates {
		c.qualifiedName(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	if spec.RuntimeClassName != nil {
		c.subdomain(path.Child("runtimeClassName"), *spec.RuntimeClassName)
	}
	if spec.Overhead != nil {
		c.resources(path.Child("overhead"), &corev1.ResourceRequirements{Limits: spec.Overhead}, containerResource)
	}
	if spec.OS != nil {
		c.podOS(path)
	}
	if len(spec.EphemeralContainers) > 0 {
		c.forbidden(path.Child("ephemeralContainers"), "cannot be set on create")
	}
	c.resourceClaims(path.Child("resourceClaims"))
	c.hostUsers(path)
	c.fileKeyVolumes(path)
}

func (c *checker) podOS(path *field.Path) {
	spec := &c.pod.Spec
	if spec.OS.Name == "" {
		c.required(path.Child("os", "name"), "")
		return
	}
	oneOf(c, path.Child("os"), spec.OS.Name, corev1.Linux, corev1.Windows)
	if spec.OS.Name != corev1.Linux {
		return
	}
	const linux = "windows options cannot be set for a linux pod"
	if spec.SecurityContext.WindowsOptions != nil {
		c.forbidden(path.Child("securityContext", "windowsOptions"), linux)
	}
	for _, container := range c.allContainers(path) {
		if container.SecurityContext != nil && container.SecurityContext.WindowsOptions != nil {
			c.forbidden(container.path.Child("securityContext", "windowsOptions"), linux)
		}
	}
}

// hostUsers checks what a user namespace cannot be combined with.
func (c *checker) hostUsers(path *field.Path) {
	spec := &c.pod.Spec
	if spec.HostUsers == nil || *spec.HostUsers {
		return
	}
	const why = "when `hostUsers` is false"
	if spec.HostNetwork {
		c.forbidden(path.Child("hostNetwork"), why)
	}
	if spec.HostPID {
		c.forbidden(path.Child("HostPID"), why)
	}
	if spec.HostIPC {
		c.forbidden(path.Child("HostIPC"), why)
	}
	for _, container := range c.allContainers(path) {
		if len(container.VolumeDevices) > 0 {
			c.forbidden(container.path.Child("volumeDevices"), why)
		}
	}
}

// fileKeyVolumes checks that variables are read from files of emptyDir volumes only.
func (c *checker) fileKeyVolumes(path *field.Path) {
	volumes := map[string]*corev1.Volume{}
	for i := range c.pod.Spec.Volumes {
		volumes[c.pod.Spec.Volumes[i].Name] = &c.pod.Spec.Volumes[i]
	}
	for _, container := range c.allContainers(path) {
		for i, env := range container.Env {
			if env.ValueFrom == nil || env.ValueFrom.FileKeyRef == nil {
				continue
			}
			at := container.path.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			name := env.ValueFrom.FileKeyRef.VolumeName
			if v := volumes[name]; v == nil {
				c.add(field.NotFound(at, name))
			} else if v.EmptyDir == nil {
				c.invalid(at, name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

// network checks names, DNS and host ports.
func (c *checker) network(path *field.Path) {
	spec := &c.pod.Spec
	c.hostNetworkPorts(path.Child("containers"))
	oneOf(c, path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	c.dnsConfig(path.Child("dnsConfig"))
	c.hostnameOverride(path.Child("hostnameOverride"))
	if spec.Hostname != "" {
		c.label(path.Child("hostname"), spec.Hostname)
	}
	if spec.Subdomain != "" {
		c.label(path.Child("subdomain"), spec.Subdomain)
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		c.ip(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			c.subdomain(at.Child("hostnames").Index(j), name)
		}
	}
}

// ip checks an address by the strict rules: no leading zeros, no IPv4 in IPv6.
func (c *checker) ip(path *field.Path, value string) {
	c.add(validation.IsValidIPForLegacyField(path, value, true, nil)...)
}

func (c *checker) hostNetworkPorts(path *field.Path) {
	if !c.pod.Spec.HostNetwork {
		return
	}
	for i := range c.pod.Spec.Containers {
		for j, port := range c.pod.Spec.Containers[i].Ports {
			if port.HostPort != port.ContainerPort {
				c.invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// Limits of the resolver in the C library.
const (
	maxNameservers      = 3
	maxSearchDomains    = 32
	maxSearchCharacters = 2048
)

func (c *checker) dnsConfig(path *field.Path) {
	dns := c.pod.Spec.DNSConfig
	if c.pod.Spec.DNSPolicy == corev1.DNSNone {
		if dns == nil {
			c.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if len(dns.Nameservers) == 0 {
			c.required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if dns == nil {
		return
	}
	if len(dns.Nameservers) > maxNameservers {
		c.invalid(path.Child("nameservers"), dns.Nameservers, "must not have more than 3 nameservers")
	}
	for i, server := range dns.Nameservers {
		c.ip(path.Child("nameservers").Index(i), server)
	}
	if len(dns.Searches) > maxSearchDomains {
		c.invalid(path.Child("searches"), dns.Searches, "must not have more than 32 search paths")
	}
	if len(strings.Join(dns.Searches, " ")) > maxSearchCharacters {
		c.invalid(path.Child("searches"), dns.Searches, "must not have more than 2048 characters (including spaces) in the search list")
	}
	for i, search := range dns.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.invalid(path.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search)...)
		}
	}
	for i, option := range dns.Options {
		if option.Name == "" {
			c.required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func (c *checker) hostnameOverride(path *field.Path) {
	spec := &c.pod.Spec
	if spec.HostnameOverride == nil {
		return
	}
	const longest = 64
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		c.forbidden(path, "may not be specified when setHostnameAsFQDN is true")
	}
	if spec.HostNetwork {
		c.forbidden(path, "may not be specified when hostNetwork is true")
	}
	if len(*spec.HostnameOverride) > longest {
		c.add(field.TooLong(path, "", longest))
	}
	c.subdomain(path, *spec.HostnameOverride)
}
