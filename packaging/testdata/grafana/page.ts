// A dashboard's file by Grafana's own schema, the options of each kind of panel included.
import type {AnnotationQuery, Dashboard, Panel as AnyPanel, VariableModel} from '@grafana/schema';
import type {AnnotationTarget} from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type * as stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as table from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import type * as timeseries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';
import type * as timeline from './node_modules/@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/types.gen';

// InFile is a type as JSON has it: an enum is its string, and what has a default may be left out.
type InFile<T> = T extends string ? `${T}`
  : T extends (infer Item)[] ? InFile<Item>[]
  : T extends object ? {[Key in keyof T]?: InFile<T[Key]>}
  : T;
type Fields = NonNullable<AnyPanel['fieldConfig']>;
type PanelOf<Kind, Options, Custom> = Omit<InFile<AnyPanel>, 'type' | 'options' | 'fieldConfig'> & {
  type: Kind;
  options?: InFile<Options>;
  fieldConfig?: {
    defaults: Omit<InFile<Fields['defaults']>, 'custom'> & {custom?: InFile<Custom>};
    overrides: InFile<Fields['overrides']>;
  };
};
type Panel = PanelOf<'stat', stat.Options, {}>
  | PanelOf<'table', table.Options, {}>
  | PanelOf<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | PanelOf<'state-timeline', timeline.Options, timeline.FieldConfig>;
// Grafana writes the query of a variable a second time, as its definition; the schema leaves that out.
type Variable = InFile<VariableModel> & {definition?: string};

// An annotation query is one of Grafana's own data source, by tags.
type Annotations = Omit<AnnotationQuery, 'target'> & {target: AnnotationTarget};

export type Page = Omit<InFile<Dashboard>, 'panels' | 'templating' | 'annotations'> & {panels: Panel[]; templating: {list: Variable[]}; annotations: {list: Annotations[]}};

// The check finds what Grafana has no word for.
// @ts-expect-error
export const badOption: Page = {annotations: {list: []}, templating: {list: []}, panels: [{type: 'stat', options: {colorMode: 'colorful'}}]};
// @ts-expect-error
export const badKind: Page = {annotations: {list: []}, templating: {list: []}, panels: [{type: 'statistic'}]};
// @ts-expect-error
export const badField: Page = {annotations: {list: []}, templating: {list: []}, panels: [{type: 'stat', fieldConfig: {defaults: {units: 'short'}, overrides: []}}]};
// @ts-expect-error
export const badTarget: Page = {templating: {list: []}, panels: [], annotations: {list: [{name: 'a', enable: true, iconColor: 'blue', target: {type: 'tags', tag: ['trimtab'], matchAny: false, limit: 100}}]}};
