from offbook.host.host_scope import HostProviders as HostProviders
from offbook.host.host_scope import HostWorkspace as HostWorkspace
