// Made from the OpenAPI document by `make docs`.

export interface AdviceView {
  rule: string;
  now: string;
  change: Record<string, string>;
  why: string;
  source: string;
  cannot_see: string;
}

export type AnswerScope = "receiver" | "cluster";

export interface BreakView {
  api: string;
  lowest: number;
  highest: number;
  needs: number | null;
  dropped_in: string;
  why: string;
  first_seen: string;
  last_seen: string;
}

export interface BrokerView {
  id: number | null;
  cluster_id: string | null;
  proven: boolean;
  advertised: string | null;
}

export interface BudgetsView {
  max_per_client: number | null;
  max_per_principal: number | null;
  max_total: number | null;
}

export interface CertificateView {
  listener: string;
  side: string;
  expires_at: string;
}

export interface ChangedSubscriptionView {
  name: string;
  metrics: (string)[];
  interval_ms: number;
  match: Record<string, string>;
  enabled: boolean;
  expires_at: string | null;
  temporality: string | null;
  labels: Record<string, string>;
  description: string;
  changed_by: string | null;
  changed_at: string | null;
  state: State;
  warnings?: (string)[] | null;
}

export interface ClientExplanationView {
  client_instance_id: string;
  client_id: string;
  via: Via;
  state: ClientState;
  subscription_id: number;
  requested_metrics: (string)[];
  push_interval_ms: number;
  temporality: Temporality;
  in_effect: boolean;
  differs: (string)[];
  asked_within_ms: number;
  metrics_from: (PrefixView)[];
  interval_from: IntervalOriginView;
  temporality_from: TemporalityOriginView;
  reduced: ReducedView | null;
  quirks: (string)[];
  revealed: RevealedView;
  subscriptions: (VerdictView)[];
}

export interface ClientIdUseView {
  series: number;
  overflowed: number;
  over_for_s: number | null;
  instances: number;
  client_id: string;
}

export type ClientState = "terminated" | "silent" | "failing" | "unsubscribed" | "waiting" | "pushing";

export interface ClientUseView {
  series: number;
  overflowed: number;
  over_for_s: number | null;
  client_instance_id: string;
  client_id: string;
  principal: string;
}

export interface ClientView {
  listener: string;
  source_address: string;
  source_port: number | null;
  client_id: string;
  client_software_name: string;
  client_software_version: string;
  principal: string;
  sasl_mechanism: string | null;
  owner: string | null;
  client_instance_id: string;
  via: Via;
  connection_id: string;
  security_protocol: string;
  client_rack: string | null;
  group_id: string | null;
  group_member_id: string | null;
  transactional_id: string | null;
  application_id: string | null;
  state: ClientState;
  subscription_id: number | null;
  push_interval_ms: number | null;
  requested_metrics: (string)[] | null;
  temporality: Temporality | null;
  subscriptions: (string)[] | null;
  quirks: (string)[];
  interval_factor: number;
  plugin_behind: string | null;
  reduced: ReducedView | null;
  pushes: number;
  pushed_minutes: string;
  last_request_age_s: number;
  last_push_age_s: number | null;
  last_error: string | null;
  terminating: boolean;
  receiver?: string | null;
  connections?: (SeenBy)[] | null;
  members?: (MemberView)[] | null;
}

export interface ClientsView {
  known: number;
  by_state: Partial<Record<ClientState, number>>;
  disconnected: number;
  versions: (VersionView)[];
}

export interface ClusterPage_ClientView_ {
  items: (ClientView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export interface ClusterPage_ConnectionView_ {
  items: (ConnectionView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export interface ClusterPage_GroupView_ {
  items: (GroupView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export interface ClusterPage_OwnerView_ {
  items: (OwnerView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export interface ClusterPage_UpgradeView_ {
  items: (UpgradeView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export interface ClusterPage_UsageView_ {
  items: (UsageView)[];
  next?: string | null;
  members?: (MemberView)[];
}

export type ConnectionGroup = "principal" | "client_id" | "software" | "address" | "listener" | "owner";

export type ConnectionState = "no_telemetry" | "terminated" | "silent" | "failing" | "unsubscribed" | "waiting" | "pushing" | "closed";

export interface ConnectionView {
  bytes_in: number | null;
  bytes_out: number | null;
  requests: number | null;
  in_flight: number | null;
  last_minute: LastMinute | null;
  idle_ms: number | null;
  listener: string;
  source_address: string;
  source_port: number | null;
  client_id: string;
  client_software_name: string;
  client_software_version: string;
  principal: string;
  sasl_mechanism: string | null;
  owner: string | null;
  id: string;
  security_protocol: string;
  client_instance_id: string | null;
  since: string;
  age_ms: number;
  state: ConnectionState;
  broker_id: number | null;
  relay: string | null;
  tls_version: string | null;
  tls_cipher: string | null;
  last_api: string | null;
  api_versions: Record<string, VersionsView> | null;
  closed_at: string | null;
  reason: string | null;
  receiver?: string | null;
}

export interface DryRunView {
  matched: number;
  examples: (MatchedView)[];
  clients: number;
  series: number | null;
  bytes_per_second: number | null;
  asked_within_ms: number;
  warnings: (string)[];
}

export type EventType = "subscription_created" | "subscription_changed" | "subscription_deleted" | "subscription_expired" | "owner_created" | "owner_changed" | "owner_deleted" | "client_created" | "client_forgotten";

export interface EventView {
  id: string;
  time: string;
  type: EventType;
  subscription: string | null;
  client_instance_id: string | null;
  client_id: string | null;
  owner: string | null;
}

export interface EventsView {
  items: (EventView)[];
  next: string;
  lost: boolean;
}

export interface ExpectedBody {
  principals?: (string)[] | null;
  topics?: (string)[] | null;
}

export interface ExpectedView {
  principals: (string)[];
  topics: (string)[];
}

export interface ExplainBody {
  enabled?: boolean | null;
  expires_at?: string | null;
  temporality?: Temporality | null;
  description?: string | null;
  name?: string | null;
  changed_by?: string | null;
  changed_at?: string | null;
  state?: string | null;
  metrics: (string)[];
  interval_ms?: number | null;
  match?: Record<string, string> | null;
  labels?: Record<string, string> | null;
}

export interface FieldError {
  field: string;
  value?: unknown;
  detail: string;
}

export interface FindingView {
  kind: string;
  severity: string;
  client_id?: string | null;
  client_instance_id?: string | null;
  client_software_name?: string | null;
  client_software_version?: string | null;
  principal?: string | null;
  group_id?: string | null;
  began_at: string;
  held_at?: string | null;
  ended_at?: string | null;
  resolved_at?: string | null;
  summary: string;
  client_ids: NamesView;
  principals: NamesView;
  owners: NamesView;
  advice: (AdviceView)[];
}

export interface FindingsView {
  items: (FindingView)[];
  total: number;
  configured: boolean;
  problem: string | null;
}

export interface GroupView {
  bytes_in: number | null;
  bytes_out: number | null;
  requests: number | null;
  in_flight: number | null;
  last_minute: LastMinute | null;
  idle_ms: number | null;
  principal?: string | null;
  client_id?: string | null;
  software?: string | null;
  address?: string | null;
  listener?: string | null;
  owner?: string | null;
  connections: number;
}

export interface HealthView {
  status: string;
  version: string;
  warnings?: (string)[] | null;
}

export interface IntervalOriginView {
  origin: Origin;
  subscriptions: (string)[];
  wanted_ms: number;
  factor: number;
}

export interface LastMinute {
  bytes_in: number;
  bytes_out: number;
  requests: number;
}

export interface LinkView {
  name: string;
  url: string;
}

export interface LinksView {
  items: (LinkView)[];
}

export interface ListenerView {
  name: string;
  bind: string;
  upstream: string;
  security_protocol: string;
  connections: number;
  broker: BrokerView;
  bypass: string | null;
  crossed: string | null;
  hidden_telemetry: string | null;
  nodes: (NodeView)[];
}

export interface MatchedView {
  client_instance_id: string;
  client_id: string;
}

export interface MemberView {
  url: string | null;
  receiver: string | null;
  answered: boolean;
  itself: boolean;
  problem: string | null;
}

export interface MetricView {
  name: string;
  kind: string;
  unit: string | null;
  description: string | null;
  delta: boolean;
  points: (PointView)[];
}

export interface NamesView {
  count: number;
  first: (string)[];
}

export interface NodeView {
  address: string;
  broker: BrokerView;
}

export type Origin = "subscription" | "default" | "quirk" | "back_pressure";

export interface OwnerBody {
  match: Partial<Record<"client_instance_id" | "client_id" | "client_software_name" | "client_software_version" | "client_source_address" | "client_source_port" | "principal" | "listener" | "security_protocol" | "client_rack" | "group_id" | "group_member_id" | "transactional_id" | "application_id" | "client_instance_id!" | "client_id!" | "client_software_name!" | "client_software_version!" | "client_source_address!" | "client_source_port!" | "principal!" | "listener!" | "security_protocol!" | "client_rack!" | "group_id!" | "group_member_id!" | "transactional_id!" | "application_id!", string>>;
  contact?: string | null;
  link?: string | null;
  expected?: ExpectedBody | null;
  team?: string | null;
  source?: string | null;
  changed_by?: string | null;
  changed_at?: string | null;
}

export interface OwnerDocumentView {
  team: string;
  match: Record<string, string>;
  contact: string;
  link: string;
  expected: ExpectedView;
  source: string;
  changed_by: string | null;
  changed_at: string | null;
}

export interface OwnerPatchBody {
  match?: Partial<Record<"client_instance_id" | "client_id" | "client_software_name" | "client_software_version" | "client_source_address" | "client_source_port" | "principal" | "listener" | "security_protocol" | "client_rack" | "group_id" | "group_member_id" | "transactional_id" | "application_id" | "client_instance_id!" | "client_id!" | "client_software_name!" | "client_software_version!" | "client_source_address!" | "client_source_port!" | "principal!" | "listener!" | "security_protocol!" | "client_rack!" | "group_id!" | "group_member_id!" | "transactional_id!" | "application_id!", string | null>>;
  contact?: string | null;
  link?: string | null;
  expected?: ExpectedBody | null;
  team?: string | null;
  source?: string | null;
  changed_by?: string | null;
  changed_at?: string | null;
}

export interface OwnerView {
  team: string;
  contact: string;
  link: string;
  match: Record<string, string>;
  expected: (string)[];
  absent: (string)[];
  expected_topics: (string)[];
  absent_topics: (string)[] | null;
  connections: number;
  clients: number;
  receiver?: string | null;
}

export interface Page_ListenerView_ {
  items: (ListenerView)[];
  next?: string | null;
}

export interface Page_PluginView_ {
  items: (PluginView)[];
  next?: string | null;
}

export interface Page_SubscriptionView_ {
  items: (SubscriptionView)[];
  next?: string | null;
}

export interface PatchBody {
  enabled?: boolean | null;
  expires_at?: string | null;
  temporality?: Temporality | null;
  description?: string | null;
  name?: string | null;
  changed_by?: string | null;
  changed_at?: string | null;
  state?: string | null;
  metrics?: (string)[];
  add_metrics?: (string)[] | null;
  remove_metrics?: (string)[] | null;
  interval_ms?: number | null;
  match?: Record<string, string | null> | null;
  labels?: Record<string, string | null> | null;
}

export type PluginState = "new" | "starting" | "running" | "restarting" | "hangs" | "stopped" | "abandoned";

export interface PluginView {
  name: string;
  type: string;
  state: PluginState;
  delivery: string;
  isolation: string;
  circuit: string;
  queue: QueueView;
  spool: SpoolView | null;
  files_problem: string | null;
  waiting: WaitingView;
  in_flight: number;
  lag_s: number;
  offered: number;
  recovered: number;
  exported: number;
  dropped: Record<string, number>;
  rejected_points: number;
  failures: number;
  consecutive_failures: number;
  restarts: number;
  call_s: number;
  last_error: string | null;
}

export interface PointView {
  attributes: Record<string, string>;
  value: number | null;
  count: number | null;
}

export interface PrefixView {
  prefix: string;
  subscriptions: (string)[];
}

export interface PrincipalUseView {
  series: number;
  overflowed: number;
  over_for_s: number | null;
  instances: number;
  principal: string;
}

export interface Problem {
  type?: string;
  title: string;
  status: number;
  detail: string;
  errors?: (FieldError)[];
}

export interface ProcessView {
  name: string;
  cpu_s: number;
  resident_bytes: number;
}

export interface PushView {
  received_at: string;
  bytes: number;
  cut: boolean;
  metrics: (MetricView)[];
}

export interface QueueView {
  pushes: number;
  bytes: number;
  max_pushes: number;
  max_bytes: number;
}

export interface ReceiverView {
  receiver: string;
  status: StatusView;
}

export interface ReceiversView {
  items: (ReceiverView)[];
  members?: (MemberView)[];
}

export interface ReducedView {
  to: "standard_metrics" | "nothing";
  offence: "too_large" | "bytes_per_minute";
  relaxes_in_s: number;
}

export interface RelaysView {
  running: number;
  expected: number;
}

export interface RevealedView {
  client_rack: string | null;
  group_id: string | null;
  group_member_id: string | null;
  transactional_id: string | null;
  application_id: string | null;
}

export interface SeenBy {
  receiver: string;
  connection_id: string;
  via: Via;
  listener: string;
  source_address: string;
  source_port: number | null;
  state: ClientState;
  pushes: number;
  last_request_age_s: number;
}

export interface SeriesView {
  budgets: BudgetsView;
  total: SharedUseView;
  clients: (ClientUseView)[];
  client_ids: (ClientIdUseView)[];
  principals: (PrincipalUseView)[];
}

export interface SessionView {
  name: string;
  role: "viewer" | "editor";
  authenticated_by: "token" | "certificate" | "session" | "nothing";
  csrf_token: string | null;
}

export interface SharedUseView {
  series: number;
  overflowed: number;
  over_for_s: number | null;
  instances: number;
}

export type SignKind = "failing_records" | "throttled" | "slow_requests" | "slow_processing" | "rebalancing";

export interface SignView {
  kind: SignKind;
  client_instance_id: string;
  client_id: string;
  client_software_name: string;
  client_software_version: string;
  principal: string;
  owner: string | null;
  group_id: string | null;
  metric: string;
  value: number;
  unit: string | null;
  since: string;
  received_at: string;
  meaning: string;
  advice: string;
  receiver?: string | null;
}

export interface SignsView {
  items: (SignView)[];
  read: number;
  clients: number;
  members?: (MemberView)[] | null;
}

export interface SpoolView {
  pushes: number;
  bytes: number;
  max_bytes: number;
  problem: string | null;
}

export type State = "active" | "disabled" | "expired";

export interface StatusView {
  version: string;
  problem: string | null;
  warnings: (string)[];
  relays: RelaysView;
  processes: (ProcessView)[];
  restarts: Record<string, number>;
  certificates: (CertificateView)[];
  listeners: (ListenerView)[];
  connections: number;
  clients: ClientsView;
  subscriptions: SubscriptionsView;
  destinations: (PluginView)[];
}

export interface SubscriptionBody {
  enabled?: boolean | null;
  expires_at?: string | null;
  temporality?: Temporality | null;
  description?: string | null;
  name?: string | null;
  changed_by?: string | null;
  changed_at?: string | null;
  state?: string | null;
  metrics: (string)[];
  interval_ms?: number | null;
  match?: Record<string, string> | null;
  labels?: Record<string, string> | null;
}

export interface SubscriptionView {
  name: string;
  metrics: (string)[];
  interval_ms: number;
  match: Record<string, string>;
  enabled: boolean;
  expires_at: string | null;
  temporality: string | null;
  labels: Record<string, string>;
  description: string;
  changed_by: string | null;
  changed_at: string | null;
  state: State;
}

export interface SubscriptionsView {
  store: string;
  problem: string | null;
  scattered: string | null;
  by_state: Partial<Record<State, number>>;
  unmatched: (string)[];
  misspelt: Record<string, string>;
}

export type Temporality = "delta" | "cumulative";

export interface TemporalityOriginView {
  origin: Origin;
  subscriptions: (string)[];
}

export interface UpgradeView {
  principal: string;
  client_id: string;
  client_software_name: string;
  client_software_version: string;
  owner: string | null;
  breaks: (BreakView)[];
}

export type UsageGroup = "principal" | "client_id" | "owner";

export interface UsageView {
  day: string;
  principal?: string | null;
  client_id?: string | null;
  owner?: string | null;
  bytes_in: number;
  bytes_out: number;
  requests: number;
  connections: number;
}

export interface ValuesView {
  items: (PushView)[];
  next: string | null;
  members?: (MemberView)[] | null;
}

export interface VerdictView {
  name: string;
  state: State;
  matches: boolean;
  reasons: (string)[];
}

export interface VersionView {
  client_software_name: string;
  client_software_version: string;
  clients: number;
}

export interface VersionsView {
  lowest: number;
  highest: number;
}

export type Via = "gateway" | "bridge";

export interface WaitingView {
  pushes: number;
  bytes: number;
  used_percent: number;
  full_in_s: number | null;
  away_s: number;
}
