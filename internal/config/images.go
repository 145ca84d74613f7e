package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/printer"
	"monopod/node/secure"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/ctrd/image/registry"
)

// imageKeys are about getting images, and about getting rid of them.
func imageKeys() []Key {
	return []Key{
		{Path: "preloadDirectories", Kind: kindPaths, doc: "Directories with OCI or docker image archives, imported at start and when they change. As long as an archive is there, its images are not removed."},
		{Path: "registryConfig", Kind: kindPath, derived: "`config.json` in `rootDirectory`", doc: "File with registry credentials, in the format of docker's `config.json`. It may be missing."},
		{Path: "registryHostsDirs", Kind: kindPaths, def: []string{"/etc/monopod/certs.d", "/etc/containerd/certs.d"}, doc: "Directories with a directory for each registry, as containerd's `certs.d`: a `hosts.toml` with mirrors, addresses and certificates, or certificates alone (`ca.crt`, `client.cert` with `client.key`). The first one that has one for a registry, or `_default`, counts. They are read at each pull."},
		{Path: "imageCredentialProviderConfig", Kind: kindPath, doc: "File with a `CredentialProviderConfig` (kubelet.config.k8s.io/v1): the plug-ins that are asked for credentials of registries. It is read at each pull; a mistake in it keeps monopod from nothing but these plug-ins."},
		{Path: "imageCredentialProviderBinDir", Kind: kindPath, derived: "the directory of `imageCredentialProviderConfig`", doc: "Directory with these plug-ins."},
		{Path: "serializeImagePulls", Kind: kindBool, def: false, doc: "Whether images are pulled one after the other."},
		{Path: "maxParallelImagePulls", Kind: kindInt, def: int64(0), doc: "Most images that are pulled at once; further ones wait. 0: no limit."},
		{Path: "registryPullQPS", Kind: kindInt, def: int64(5), doc: "How many pulls may begin in a second; further ones wait. 0: no limit."},
		{Path: "registryBurst", Kind: kindInt, def: int64(10), doc: "How many pulls may begin at once before `registryPullQPS` counts."},
		{Path: "imagePullBandwidth", Kind: kindString, doc: "How many bytes a second all pulls together may take of the network, as `2Mi`. Empty: no limit."},
		{Path: "imagePolicy", Kind: kindRules, doc: "Which images may be used, and who must have signed them: rules, of which the first one that matches counts. With rules, an image that none matches is refused; what runs already runs on. See `monopod docs images`."},
		{Path: "imageGCHighThresholdPercent", Kind: kindInt, def: int64(85), doc: "How full the file system of the images is, in percent, when images are removed that nobody needs. 100: none is for that."},
		{Path: "imageGCLowThresholdPercent", Kind: kindInt, def: int64(80), doc: "How full it is when removing them ends."},
		{Path: "imageMinimumGCAge", Kind: kindDuration, def: 2 * time.Minute, doc: "How long an image stays at least after it has come."},
		{Path: "imageMaximumGCAge", Kind: kindDuration, def: time.Duration(0), doc: "How long an image stays that nobody uses, however empty the disk is. 0s: for ever."},
	}
}

// images finds what is wrong with keys about images.
func (c *configCheck) images(cfg *Config) {
	high, low := cfg.ImageGCHighThresholdPercent, cfg.ImageGCLowThresholdPercent
	for _, p := range []struct {
		key   string
		value int
	}{{"imageGCHighThresholdPercent", high}, {"imageGCLowThresholdPercent", low}} {
		if p.value < 0 || p.value > 100 {
			c.add(p.key, fmt.Sprintf("%d is not between 0 and 100", p.value), "it is a percentage")
		}
	}
	c.pulls(cfg)
	c.imageRules(cfg)
	if low >= high {
		c.add("imageGCLowThresholdPercent", fmt.Sprintf("%d is not less than imageGCHighThresholdPercent, which is %d", low, high), "")
	}
	if cfg.ImageMinimumGCAge < 0 {
		c.add("imageMinimumGCAge", DurationText(cfg.ImageMinimumGCAge)+" is less than 0s", "")
	}
	if cfg.ImageMaximumGCAge != 0 && cfg.ImageMaximumGCAge <= cfg.ImageMinimumGCAge {
		c.add("imageMaximumGCAge", fmt.Sprintf("%s is not more than imageMinimumGCAge, which is %s", DurationText(cfg.ImageMaximumGCAge), DurationText(cfg.ImageMinimumGCAge)), "0s switches it off")
	}
}

// pulls finds what is wrong with keys about pulling.
func (c *configCheck) pulls(cfg *Config) {
	for _, n := range []struct {
		key   string
		value int
	}{{"maxParallelImagePulls", cfg.MaxParallelImagePulls}, {"registryPullQPS", cfg.RegistryPullQPS}, {"registryBurst", cfg.RegistryBurst}} {
		if n.value < 0 {
			c.add(n.key, fmt.Sprintf("%d is less than 0", n.value), "0 is no limit")
		}
	}
	if cfg.SerializeImagePulls && cfg.MaxParallelImagePulls > 1 {
		c.add("maxParallelImagePulls", fmt.Sprintf("%d pulls at once contradict serializeImagePulls", cfg.MaxParallelImagePulls), "set serializeImagePulls: false")
	}
	if q, err := resource.ParseQuantity(cfg.ImagePullBandwidth); cfg.ImagePullBandwidth != "" && (err != nil || q.Value() < 1024) {
		c.add("imagePullBandwidth", fmt.Sprintf("%q is not a number of bytes, at least 1Ki", cfg.ImagePullBandwidth), "write it as 512Ki or 2Mi")
	}
}

// ProviderFaults are what is wrong with files that are read only when something needs them, and what may come later. They keep
// a daemon from nothing else, so that it comes back after a reboot; who looks at a configuration is told.
func (c *Loaded) ProviderFaults() (wrong Problems, later []string) {
	wrong, later = c.providerFaults()
	auth := &c.Authentication
	for _, f := range []struct {
		key, file, hint string
		check           func(string) error
	}{
		{"authentication.tokenFile", auth.TokenFile, "a token can be made with: openssl rand -hex 16", secure.CheckTokenFile},
		{"authentication.x509.clientCAFile", auth.X509.ClientCAFile, "write the certificates of the authorities into it, in PEM", secure.CheckAuthorities},
	} {
		if f.file == "" {
			continue
		}
		check := &configCheck{sources: c.Sources}
		switch err := f.check(f.file); {
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist): // another user may read it, or it comes later
			later = append(later, f.key+": "+printer.OneLine(err.Error()))
		case err != nil:
			check.add(f.key, printer.OneLine(err.Error()), f.hint)
		}
		wrong = append(wrong, check.problems...)
	}
	return wrong, later
}

// providerFaults are those of credential provider plug-ins.
func (c *Loaded) providerFaults() (wrong Problems, later []string) {
	if c.ImageCredentialProviderConfig == "" {
		return nil, nil
	}
	mistake, missing := registry.CheckProviders(c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir)
	if missing != nil {
		later = printer.ErrorLines(missing)
	}
	if errors.Is(mistake, fs.ErrPermission) { // another user may read it
		return nil, append(later, printer.OneLine(mistake.Error()))
	}
	check := &configCheck{sources: c.Sources}
	if mistake != nil {
		check.add("imageCredentialProviderConfig", mistake.Error(), "until it is corrected, images are pulled without its plug-ins")
	}
	return check.problems, later
}

// ProviderWarnings are faults as a running daemon tells of them, one line each.
func (c *Loaded) ProviderWarnings() []string {
	wrong, all := c.ProviderFaults()
	for _, p := range wrong {
		all = append(all, printer.OneLine(p.Error()))
	}
	return all
}

// RegistryAccess is how registries are reached.
func (c *Config) RegistryAccess(log *slog.Logger) registry.Access {
	return registry.Access{
		AuthFile: c.RegistryConfig, HostsDirs: c.RegistryHostsDirs,
		Providers: registry.NewProviders(c.ImageCredentialProviderConfig, c.ImageCredentialProviderBinDir, log),
	}
}

// PullLimits are what pulls may do at once.
func (c *Config) PullLimits() registry.Limits {
	l := registry.Limits{Parallel: c.MaxParallelImagePulls, QPS: float64(c.RegistryPullQPS), Burst: c.RegistryBurst}
	if c.SerializeImagePulls {
		l.Parallel = 1
	}
	if q, err := resource.ParseQuantity(c.ImagePullBandwidth); err == nil {
		l.Bandwidth = q.Value()
	}
	return l
}

// GarbagePolicy says when images go.
func (c *Config) GarbagePolicy() gc.Policy {
	return gc.Policy{High: c.ImageGCHighThresholdPercent, Low: c.ImageGCLowThresholdPercent, MinAge: c.ImageMinimumGCAge, MaxAge: c.ImageMaximumGCAge}
}
