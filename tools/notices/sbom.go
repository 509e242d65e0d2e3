package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom renders a CycloneDX bill of materials of the programs: which they are by their
// sums, and which modules each holds. It has no serial number: equal programs, equal bytes.
func sbom(version, epoch string, programs []program, modules []module) ([]byte, error) {
	bom := cdx.NewBOM()
	whole := component(cdx.ComponentTypeApplication, programs[0].info.Main.Path, version)
	whole.Name = "trimtab"
	whole.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom.Metadata = &cdx.Metadata{Component: &whole}
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		bom.Metadata.Timestamp = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	}

	refs := map[string]string{}
	var components []cdx.Component
	for _, m := range modules {
		// Databases of vulnerabilities know stdlib 1.26.8, not go1.26.8.
		c := component(cdx.ComponentTypeLibrary, m.path, strings.TrimPrefix(m.version, "go"))
		refs[m.path] = c.BOMRef
		components = append(components, c)
	}
	var programRefs []string
	var holds []cdx.Dependency
	for _, p := range programs {
		c, err := file(p, version)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
		programRefs = append(programRefs, c.BOMRef)
		linked := []string{refs[stdlib]}
		for _, d := range p.info.Deps {
			linked = append(linked, refs[d.Path])
		}
		holds = append(holds, cdx.Dependency{Ref: c.BOMRef, Dependencies: &linked})
	}
	holds = append(holds, cdx.Dependency{Ref: whole.BOMRef, Dependencies: &programRefs})
	bom.Components, bom.Dependencies = &components, &holds

	var b bytes.Buffer
	err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return b.Bytes(), err
}

// component is one Go module, by the name that scanners look it up by.
func component(kind cdx.ComponentType, path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: purl, Type: kind, Name: path, Version: version, PackageURL: purl}
}

// file is a program as it is shipped.
func file(p program, version string) (cdx.Component, error) {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return cdx.Component{}, err
	}
	sum := sha256.Sum256(content)
	name := filepath.Base(p.file)
	return cdx.Component{BOMRef: "file:" + name, Type: cdx.ComponentTypeFile, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}}, nil
}
